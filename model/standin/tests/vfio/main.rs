//! What a program sees of the stand-in, ioctl by ioctl.

mod dma;
mod driver;
mod irqs;
mod open;
mod region;
mod rig;
mod taken_away;
