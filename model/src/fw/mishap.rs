//! What a fault script lets happen to a function.
#![forbid(unsafe_code)]

use super::Function;
use crate::fault::Mishap;
use mlx5_direct::mlx5::eqe::{EqePageReq, EventType};

impl Function {
    /// Something happens to the function, of itself.
    pub(crate) fn suffer(&mut self, mishap: Mishap) {
        self.note(|| format!("fault: {mishap}"));
        match mishap {
            Mishap::Link { up } => self.set_link(up),
            Mishap::Gone => self.set_gone(true),
            Mishap::Back => self.set_gone(false),
            Mishap::Health(fatal) => self.fail_health(fatal),
            Mishap::Hang => self.hang(),
            Mishap::Reset => self.restart_firmware(),
            Mishap::Pages(n) => {
                let event = EqePageReq::new().with_num_pages(n as u32);
                self.event(EventType::PAGE_REQUEST, 0, event.to_bytes());
            }
        }
    }

    /// Firmware starts anew, though nobody asked for it: what a driver had made is forgotten.
    fn restart_firmware(&mut self) {
        self.forget();
        self.await_driver();
    }
}
