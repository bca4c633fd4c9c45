//! Text, read for what devices say.

use mlx5_study::{
    record::Record,
    structure::{As, ReceiveHead, Transport},
    text::{Finder, Options},
};

/// As what bytes are read.
pub(crate) const KINDS: [As; 8] = [
    As::Auto,
    As::Wqe,
    As::Cqe,
    As::Eqe,
    As::Cmd,
    As::Receive(ReceiveHead::None),
    As::Receive(ReceiveHead::Next),
    As::Receive(ReceiveHead::Signature),
];
/// How queue pairs talk whose requests need to be told.
pub(crate) const TALKS: [Option<Transport>; 4] =
    [None, Some(Transport::Ud), Some(Transport::Raw), Some(Transport::Dc)];

/// Two bytes say as what and in which pieces, the rest is the text.
pub(crate) fn check(input: &[u8]) {
    let Some(([how, piece_len], text)) = input.split_first_chunk() else { return };
    let how = usize::from(*how);
    let options = Options { read_as: KINDS[how % 8], transport: TALKS[how / 8 % 4] };
    let n_lines = text.split(|byte| *byte == b'\n').count() as u64;
    let (whole, n_whole_lines) = read(options, [text]);
    let (pieces, n_lines_in_pieces) = read(options, text.chunks(usize::from(*piece_len) + 1));
    assert_eq!(n_whole_lines, n_lines_in_pieces);
    assert_eq!(format!("{whole:?}"), format!("{pieces:?}"), "how the text comes must not matter");
    for record in &whole {
        let lines = &record.lines;
        assert!(*lines.start() >= 1 && lines.start() <= lines.end() && *lines.end() <= n_lines, "{lines:?}");
        for structure in &record.structures {
            assert!(structure.bytes.len() >= structure.desc.size_bytes, "{}", structure.title);
            assert!(!structure.desc.explain(&structure.bytes).to_string().is_empty());
        }
    }
}

/// Records of a text that comes in pieces, and how many lines it had.
fn read<'t>(options: Options, pieces: impl IntoIterator<Item = &'t [u8]>) -> (Vec<Record>, u64) {
    let mut records = Vec::new();
    let mut finder = Finder::new(options);
    for piece in pieces {
        finder.feed(piece, &mut |record| records.push(record));
    }
    finder.end(&mut |record| records.push(record));
    (records, finder.n_lines())
}
