//! `mlx5 notes`: the notes on the terminal, and the page.

use crate::{mlx5, ok};

#[test]
fn the_notes_are_listed_and_each_is_shown_by_its_names() {
    let list = ok("notes");
    for part in ["flow-read ", "ctrl-segment ", "CtrlSeg", "error-cqe "] {
        assert!(list.contains(part), "{part} in {list}");
    }
    let note = ok("notes ctrl-segment");
    assert!(note.starts_with("# Control segment\n") && note.contains("| 0x04 | 31:8 | `qpn` |"), "{note}");
    for name in ["CtrlSeg", "wqe_ctrl_seg"] {
        assert_eq!(ok(&format!("notes {name}")), note, "{name}");
    }
    // What no note is about is drawn by itself.
    assert!(ok("notes CREATE_CQ").contains("`create_cq_in`"), "a command");
}

#[test]
fn a_field_is_shown_wherever_it_is() {
    let fields = ok("notes --field syndrome");
    assert!(fields.contains("ErrorCqe") && fields.contains("0x13 REMOTE_ACCESS_ERR"), "{fields}");
}

#[test]
fn the_page_stands_alone() {
    let page = ok("notes --html -");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_name_that_nothing_has_is_told() {
    for args in ["notes nosuch", "notes --field nosuch"] {
        let ended = mlx5(args);
        assert_eq!(ended.code, Some(2), "{args}");
        assert!(ended.stderr.contains("`nosuch`"), "{}", ended.stderr);
    }
    assert_eq!(mlx5("notes --html /nosuch/page.html").code, Some(1));
}
