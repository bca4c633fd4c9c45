//! What a program sees of the stand-in, ioctl by ioctl.

mod dma;
mod irqs;
mod open;
mod region;
mod rig;
