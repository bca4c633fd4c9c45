//! Whether what was dumped as the WQE of a failed request is one: a dumper takes what is in the ring's slot.

use mlx5_direct::wqe::{CtrlSeg, SEGMENT_BYTES};

/// Bits of a translation entry below a page's address that say what may be done with it.
const RIGHTS: u64 = 0xfff;

/// Why `bytes` are no WQE, or not that of the CQE whose QP is told: `None` if they may well be. The reason comes with
/// whether they are something else altogether.
pub(super) fn verdict(bytes: &[u8], cqe_qpn: Option<u32>) -> Option<(String, bool)> {
    let ctrl = CtrlSeg::from_bytes(*bytes.first_chunk::<SEGMENT_BYTES>()?);
    let is_of_another = cqe_qpn.is_some_and(|qpn| qpn != 0 && qpn != ctrl.qpn().get());
    let contradicts = || {
        let qpn = cqe_qpn.unwrap_or_default();
        format!("qpn 0x{:x} and ds {} contradict the CQE's qpn 0x{qpn:x}", ctrl.qpn().get(), ctrl.ds())
    };
    if let Some(entries) = translation(bytes) {
        let end = if is_of_another { format!("; {}", contradicts()) } else { String::new() };
        return Some((format!("not a WQE: {entries}{end}"), true));
    }
    is_of_another.then(|| (format!("not the WQE of that CQE: {}", contradicts()), false))
}

/// Addresses of pages with rights below them, if nothing else is there.
fn translation(bytes: &[u8]) -> Option<String> {
    let entries: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|entry| u64::from_be_bytes(*entry)).collect();
    let (first, last) = (*entries.first()?, *entries.last()?);
    let rights = first & RIGHTS;
    let is_translation = entries.len() >= 4
        && (1..=3).contains(&rights)
        && entries.iter().all(|entry| entry & RIGHTS == rights && *entry > RIGHTS);
    if !is_translation {
        return None;
    }
    let step = entries[1].wrapping_sub(first);
    let is_row = entries.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == step);
    let pages = if is_row && (RIGHTS + 1..1 << 32).contains(&step) {
        format!("consecutive {} KiB pages 0x{:x}..0x{:x}", step / 1024, first & !RIGHTS, last & !RIGHTS)
    } else {
        format!("pages from 0x{:x} to 0x{:x}", first & !RIGHTS, last & !RIGHTS)
    };
    const NAMES: [&str; 9] = ["", "", "", "", "four", "five", "six", "seven", "eight"];
    let n = NAMES.get(entries.len()).map_or_else(|| entries.len().to_string(), |name| (*name).to_owned());
    Some(format!("{n} 8-byte big-endian translation entries, {pages}, low bits 0x{rights:x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translation_entries_are_no_wqe() {
        let pages = |step: u64, rights: u64| -> Vec<u8> {
            (0..8).flat_map(|n| ((0x1_d9ed_8000 + n * step) | rights).to_be_bytes()).collect()
        };
        let (why, is_other) = verdict(&pages(0x1000, 2), Some(0x8f4)).unwrap();
        assert!(is_other);
        assert_eq!(
            why,
            "not a WQE: eight 8-byte big-endian translation entries, consecutive 4 KiB pages 0x1d9ed8000..0x1d9edf000, \
             low bits 0x2; qpn 0xd9ed80 and ds 2 contradict the CQE's qpn 0x8f4"
        );
        assert!(verdict(&pages(0x1_0000, 3), None).unwrap().0.contains("consecutive 64 KiB pages"));
        assert!(verdict(&pages(0, 3), None).unwrap().0.contains("pages from"));
        assert_eq!(verdict(&pages(0x1000, 4), None), None);
    }

    #[test]
    fn a_wqe_of_another_queue() {
        let ctrl = CtrlSeg::new().with_ds(1).with_qpn(mlx5_direct::mlx5::ids::Qpn::new(5)).to_bytes();
        assert_eq!(verdict(&ctrl, Some(5)), None);
        assert_eq!(verdict(&ctrl, Some(0)), None);
        assert!(verdict(&ctrl, Some(6)).unwrap().0.contains("qpn 0x5"));
        assert_eq!(verdict(&ctrl[..15], Some(6)), None);
    }
}
