//! `docs/testing.md` is held to its word.

mod cases;
mod suite;
