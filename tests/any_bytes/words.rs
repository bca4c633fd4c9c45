//! Names, addresses and scripts that users write.

use mlx5_direct::{QpAddress, device::DeviceName, host::PciAddress};
use mlx5_model::{ModelConfig, fault::FaultScript, wire::UplinkAddress};
use std::{fmt::Debug, str::FromStr};

/// Text, read as each of them.
pub(crate) fn check(input: &str) {
    parse::<DeviceName>(input, Some(ToString::to_string));
    parse::<PciAddress>(input, Some(ToString::to_string));
    parse::<QpAddress>(input, Some(ToString::to_string));
    parse::<ModelConfig>(input, None);
    parse::<UplinkAddress>(input, Some(ToString::to_string));
    parse::<FaultScript>(input, Some(ToString::to_string));
}

/// Parses `input`; what is understood is understood again as it is printed.
fn parse<T: FromStr<Err: Debug> + Debug>(input: &str, print: Option<fn(&T) -> String>) {
    match input.parse::<T>() {
        Ok(value) => {
            if let Some(print) = print {
                let printed = print(&value);
                let again = printed
                    .parse::<T>()
                    .unwrap_or_else(|error| panic!("{input:?} is printed as {printed:?}: {error:?}"));
                assert_eq!(format!("{again:?}"), format!("{value:?}"), "{input:?}, printed as {printed:?}");
            }
        }
        Err(error) => assert!(!format!("{error:?}").is_empty()),
    }
}
