//! What goes wrong on purpose: one script for the wire, the firmware, its queues and the bus.
//!
//! A [`FaultScript`] is text, one fault a line, and prints as what it was parsed from. Whatever is left open in it (rates,
//! bits to flip, garbage) follows from its seed, so that a stepped card does the same thing every time.
//!
//! ```text
//! seed 7                          what is drawn is drawn from here
//! packet 12 drop                  the 12th packet from now on is lost
//! @1 packet 3..5 duplicate 2      the 3rd to 5th that function 1 sends arrive twice
//! packet 3% reorder 4             of all packets 3 % are overtaken by 4 others
//! packet 9 delay 50us
//! packet 20 corrupt 117           bit 117 is flipped: the ICRC is wrong
//! packet 21 psn +5                5 PSNs are skipped, and the ICRC is right
//! receive 2 missing               as if no receive were posted: RNR
//! command CREATE_QP 1 fail 0x5 0x1234
//! command 30..32 undelivered 0x2  firmware never sees it
//! command ALLOC_PD * stuck        taken and never completed
//! command 40 late 5ms
//! command * last                  of commands that wait together, the last rung comes first
//! event CMD 3 lost                the EQE is not written
//! event 4 silent                  it is, and no interrupt tells
//! event 5 garbage                 its bytes are anything
//! completion 8 owner              a CQE with the owner bit of the lap before
//! completion 9 fail REMOTE_ABORTED_ERR 0x22
//! time 5ms link down
//! @0 time 8ms health FW_ERR 0x57
//! time 9ms pages -5000            firmware wants pages back, or more
//! time 10ms hang                  firmware does nothing any more, nor does its counter
//! time 11ms reset                 firmware starts anew, unasked
//! time 12ms gone                  registers read all ones
//! time 20ms back                  and answer again, after a reset
//! ```
//!
//! Counts begin at 1 with what comes after the script was given ([`Model::inject`](crate::Model::inject)), times with that
//! moment. A fault without `@` is of the whole card: it counts what all functions do, and happens to all of them. Of
//! several that meet the same packet or command, the first in the script happens.
//!
//! What did happen is a script too ([`Model::faults_done`](crate::Model::faults_done)), in which nothing is left to be
//! drawn:
//!
//! ```
//! use mlx5_model::{Model, fault::FaultScript};
//!
//! let script: FaultScript = "seed 7\npacket 2% drop\ncommand ALLOC_PD 2 fail 0x5".parse().unwrap();
//! assert_eq!(script.to_string().parse(), Ok(script.clone()));
//! let model = Model::new("drive=step".parse().unwrap()).unwrap();
//! model.inject(&script);
//! // … a driver's work …
//! println!("{}", model.faults_done());
//! ```
#![forbid(unsafe_code)]

mod draw;
mod injector;
mod random;
mod script;
mod text;

pub(crate) use injector::{Injector, garbage};
pub use random::{Mix, from_file_or_seed};
pub use script::{CommandFate, EntryFate, Fault, FaultScript, Mishap, Nth, PacketFate};
pub use text::ScriptError;
