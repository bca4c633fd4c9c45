//! Structures of the device, printed.

use mlx5_direct::{
    cqe,
    mlx5::{self, layout::Desc},
    wqe,
};

/// Every structure that is declared.
pub(crate) fn all() -> Vec<&'static Desc> {
    [mlx5::layouts(), wqe::layouts(), cqe::layouts()].concat()
}

/// Bytes of the number that says which structure an input is of.
pub(crate) const HEAD_BYTES: usize = 2;

/// A structure's number among all, and its bytes; zeros behind their end.
pub(crate) fn check(input: &[u8]) {
    let Some((head, bytes)) = input.split_first_chunk::<HEAD_BYTES>() else { return };
    let all = all();
    let desc = all[usize::from(u16::from_be_bytes(*head)) % all.len()];
    let mut bytes = bytes.to_vec();
    bytes.resize(desc.size_bytes, 0);
    let printed = desc.explain(&bytes).to_string();
    for field in desc.fields {
        assert!(printed.contains(field.name), "{} of {}:\n{printed}", field.name, desc.name);
    }
    if let Some(bit) = desc.reserved_bit_set(&bytes) {
        assert!(bytes[bit / 8] >> (7 - bit % 8) & 1 != 0, "bit {bit} of {}", desc.name);
    }
}
