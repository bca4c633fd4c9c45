//! The notes on the device's structures: as text, and as one page that draws every structure.

mod data;
mod page;
mod prose;

pub use page::html;

use mlx5_direct::{
    cqe,
    mlx5::{
        self,
        layout::{Desc, Enumeration, Field, Kind},
    },
    wqe,
};
use std::collections::BTreeSet;

/// A text of `docs/prm-notes`.
#[derive(Debug, Clone, Copy)]
pub struct Note {
    /// Name of its file, without `.md`.
    pub id: &'static str,
    /// The text, in Markdown.
    pub text: &'static str,
}

/// Every note, by name.
pub const NOTES: &[Note] = include!(concat!(env!("OUT_DIR"), "/notes.rs"));

/// The note in which the others stand in the order to read them.
pub fn index() -> &'static Note {
    NOTES.iter().find(|note| note.id == "README").unwrap_or(&NOTES[0])
}

/// The rules that the notes name.
pub const RULES: Note = Note { id: "rules", text: include_str!("../../../docs/rules.md") };

impl Note {
    /// Its first heading.
    pub fn title(&self) -> &'static str {
        self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(self.id)
    }

    /// The structures that it draws, in order, by the names of their types.
    pub fn structures(&self) -> Vec<&'static str> {
        let drawn = self.text.split("<!-- drawn: ").skip(1);
        drawn.filter_map(|rest| Some(rest.split_once(" -->")?.0)).collect()
    }
}

/// The notes in the order to read them: as the index names them, and then the others.
pub fn in_order() -> Vec<&'static Note> {
    let index = index().text;
    let place = |note: &&Note| index.find(&format!("({}.md)", note.id)).unwrap_or(usize::MAX);
    let mut notes: Vec<_> = NOTES.iter().filter(|note| note.id != "README").collect();
    notes.sort_by_key(place);
    notes
}

/// Every declared structure: those of the data path first.
pub fn structures() -> Vec<&'static Desc> {
    [wqe::layouts(), cqe::layouts(), mlx5::layouts()].concat()
}

/// What a name names: a note's file, a structure's type or its name in the tables, a command.
#[derive(Debug, Clone, Copy)]
pub enum Named {
    /// A note.
    Note(&'static Note),
    /// A structure. The note that draws it, if one does.
    Structure(&'static Desc, Option<&'static Note>),
}

/// Finds what is named, in whatever letters.
pub fn find(name: &str) -> Option<Named> {
    let name = name.trim_end_matches(".md");
    if let Some(note) = NOTES.iter().find(|note| note.id.eq_ignore_ascii_case(name)) {
        return Some(Named::Note(note));
    }
    let by_command = mlx5::commands()
        .iter()
        .find(|command| command.opcode.name().is_some_and(|known| known.eq_ignore_ascii_case(name)))
        .map(|command| command.input);
    let by_name = structures()
        .into_iter()
        .find(|desc| desc.name.eq_ignore_ascii_case(name) || desc.prm.eq_ignore_ascii_case(name));
    let desc = by_name.or(by_command)?;
    Some(Named::Structure(desc, NOTES.iter().find(|note| note.structures().contains(&desc.name))))
}

/// Every field of this name, with its structure.
pub fn fields(name: &str) -> Vec<(&'static Desc, &'static Field)> {
    structures()
        .into_iter()
        .flat_map(|desc| desc.fields.iter().map(move |field| (desc, field)))
        .filter(|(_, field)| field.name.eq_ignore_ascii_case(name))
        .collect()
}

/// A field's meaning, as one line of plain text.
pub fn meaning(field: &Field) -> String {
    prose::plain(field.doc)
}

/// The enumeration that a field's values are of.
pub fn enumeration(field: &Field) -> Option<&'static Enumeration> {
    match field.kind {
        Kind::Bits { enumeration, .. } => enumeration,
        Kind::Bytes | Kind::Struct(_) => None,
    }
}

/// Every enumeration that a declared field is of, by name.
fn enumerations() -> Vec<&'static Enumeration> {
    let fields = structures().into_iter().flat_map(|desc| desc.fields);
    let mut seen = BTreeSet::new();
    let mut found: Vec<_> = fields.filter_map(enumeration).filter(|e| seen.insert(e.name)).collect();
    found.sort_by_key(|e| e.name);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_gives_the_order() {
        let order: Vec<_> = in_order().iter().map(|note| note.id).collect();
        assert_eq!((index().id, order.len()), ("README", NOTES.len() - 1));
        let place = |id| order.iter().position(|one| *one == id).unwrap();
        assert!(place("ctrl-segment") < place("error-cqe"), "{order:?}");
    }

    #[test]
    fn names_are_found() {
        assert!(matches!(find("ctrl-segment"), Some(Named::Note(note)) if note.title() == "Control segment"));
        for name in ["CtrlSeg", "wqe_ctrl_seg", "ctrlseg"] {
            assert!(
                matches!(find(name), Some(Named::Structure(desc, Some(note))) if desc.name == "CtrlSeg" && note.id == "ctrl-segment"),
                "{name}"
            );
        }
        assert!(matches!(find("create_qp"), Some(Named::Structure(desc, None)) if desc.name == "CreateQpIn"));
        assert!(find("nothing").is_none());
    }

    #[test]
    fn fields_are_found_in_all_structures() {
        let found = fields("wqe_counter");
        assert!(found.iter().any(|(desc, _)| desc.name == "ErrorCqe") && found.len() >= 4, "{found:?}");
        let (_, ds) = fields("ds")[0];
        assert_eq!(meaning(ds), "Size of the whole WQE in 16-byte units, this segment included.");
    }
}
