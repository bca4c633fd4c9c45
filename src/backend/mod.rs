//! Control paths: how objects are made. The data path does not pass here.

pub mod pci;
