//! How far a run is: a progress bar for those who wait at a terminal, and a look at the device now and then, since traffic
//! goes on when somebody wants the device back.

use crate::{endpoint::Endpoint, failure::Failure};
use indicatif::{ProgressBar, ProgressStyle};
use mlx5_direct::Context;
use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

/// Counts a run; draws on standard error once it has taken a second, if that is a terminal.
pub(crate) struct Progress {
    name: String,
    total: u64,
    started: Instant,
    next_look: u64,
    step: u64,
    bar: Option<ProgressBar>,
    shows: bool,
    devices: Vec<Context>,
    checked: Instant,
}

/// Pause between two looks at the device.
const CHECK: Duration = Duration::from_millis(500);

impl Progress {
    pub(crate) fn new(name: String, total: u64, ends: &[Endpoint]) -> Self {
        let step = (total / 512).clamp(1, 4096);
        let devices = ends.iter().map(|end| end.ctx.clone()).collect();
        let (now, shows) = (Instant::now(), io::stderr().is_terminal());
        Self { name, total, started: now, next_look: step, step, bar: None, shows, devices, checked: now }
    }

    /// `done` of the total are done.
    #[inline]
    pub(crate) fn at(&mut self, done: u64) -> Result<(), Failure> {
        if done >= self.next_look { self.look(done) } else { Ok(()) }
    }

    #[cold]
    fn look(&mut self, done: u64) -> Result<(), Failure> {
        self.next_look = done.saturating_add(self.step);
        if self.checked.elapsed() > CHECK {
            self.checked = Instant::now();
            for device in &self.devices {
                device.health()?;
            }
        }
        if self.shows && self.bar.is_none() && self.started.elapsed() > Duration::from_secs(1) {
            let bar = ProgressBar::new(self.total).with_message(self.name.clone());
            // The default style if this template were wrong.
            if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len} {eta}") {
                bar.set_style(style);
            }
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
        Ok(())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
