//! What a scenario gives.

use std::error::Error;

/// An error says what was not as it should be.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Fails a scenario.
pub(crate) fn fail<T>(why: impl Into<String>) -> Outcome<T> {
    Err(why.into().into())
}
