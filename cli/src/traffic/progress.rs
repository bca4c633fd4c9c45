//! A progress bar, for those who wait at a terminal.

use indicatif::{ProgressBar, ProgressStyle};
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
    enabled: bool,
}

impl Progress {
    pub(crate) fn new(name: String, total: u64) -> Self {
        let step = (total / 512).clamp(1, 4096);
        let enabled = io::stderr().is_terminal();
        Self { name, total, started: Instant::now(), next_look: step, step, bar: None, enabled }
    }

    /// `done` of the total are done.
    #[inline]
    pub(crate) fn at(&mut self, done: u64) {
        if self.enabled && done >= self.next_look {
            self.look(done);
        }
    }

    #[cold]
    fn look(&mut self, done: u64) {
        self.next_look = done.saturating_add(self.step);
        if self.bar.is_none() && self.started.elapsed() > Duration::from_secs(1) {
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
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
