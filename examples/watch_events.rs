//! Prints what happens to a device outside of completions: ports that go up and down, errors.
//!
//! `cargo run --example watch_events -- mlx5_0 60`, with the name of a verbs device, for a minute.

use mlx5_direct::{
    Context,
    backend::verbs::{VerbsControl, devices},
};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, seconds] = arguments.as_slice() else {
        return Err(format!("usage: watch_events DEVICE SECONDS; devices: {:?}", devices()?).into());
    };
    let ctx = Context::on(VerbsControl::open(name)?);
    println!("watching {}", ctx.name());
    let deadline = Instant::now() + Duration::from_secs(seconds.parse()?);
    while let Some(event) = ctx.next_async_event(deadline.saturating_duration_since(Instant::now()))? {
        println!("{event:?}");
    }
    ctx.close().map_err(|(_, error)| error)?;
    Ok(())
}
