//! What the bytes and error lines of mlx5 devices say.
//!
//! Everything is told by the driver's own layouts, encoders and decoders: nothing here knows a bit's place.
#![forbid(unsafe_code)]

pub mod diff;
pub mod encode;
pub mod facts;
pub mod notes;
pub mod record;
pub mod structure;
pub mod text;
pub mod wire;
