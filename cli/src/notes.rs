//! `notes`: what each structure of the device is, as text and as a page.

use crate::failure::Failure;
use clap::Args;
use mlx5_direct::mlx5::layout::{Desc, Field, Kind};
use mlx5_study::notes::{self, Named, Note};
use std::{fs, io::Write, path::PathBuf};

/// Arguments of `notes`.
#[derive(Debug, Args)]
pub(crate) struct Notes {
    /// A note, a structure or a command: `ctrl-segment`, `CtrlSeg`, `wqe_ctrl_seg`, `CREATE_QP`. Without it, all notes are
    /// listed in the order to read them
    #[arg(value_name = "NAME", conflicts_with_all = ["field", "html"])]
    name: Option<String>,
    /// Every structure that has a field of this name, with its place and meaning
    #[arg(long, value_name = "NAME", conflicts_with = "html")]
    field: Option<String>,
    /// Write one page with everything: all structures as grids of bits, the notes, search, and a place to paste hex. It
    /// asks the network for nothing. `-` is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn notes(args: &Notes, out: &mut impl Write) -> Result<(), Failure> {
    if let Some(path) = &args.html {
        return page(path, out);
    }
    if let Some(name) = &args.field {
        return field(name, out);
    }
    match &args.name {
        None => Ok(list(out)?),
        Some(name) => show(name, out),
    }
}

fn page(path: &PathBuf, out: &mut impl Write) -> Result<(), Failure> {
    let page = notes::html();
    if path.as_os_str() == "-" {
        return Ok(out.write_all(page.as_bytes())?);
    }
    fs::write(path, page).map_err(|error| Failure::Run(format!("cannot write {}: {error}", path.display())))
}

fn list(out: &mut impl Write) -> std::io::Result<()> {
    for note in notes::in_order() {
        writeln!(out, "{:<20} {}", note.id, note.title())?;
        let structures = note.structures();
        if !structures.is_empty() {
            writeln!(out, "{:<20} {}", "", structures.join(" "))?;
        }
    }
    writeln!(out, "\n{} structures in all. `mlx5 notes NAME` shows one.", notes::structures().len())
}

fn show(name: &str, out: &mut impl Write) -> Result<(), Failure> {
    match notes::find(name) {
        Some(Named::Note(note) | Named::Structure(_, Some(note))) => Ok(write_note(note, out)?),
        Some(Named::Structure(desc, None)) => Ok(write!(out, "# {}\n\n{}", desc.name, desc.draw())?),
        None => Err(Failure::Usage(format!(
            "no note, structure or command is called `{name}`: `mlx5 notes` lists the notes, `mlx5 notes --html FILE` has all"
        ))),
    }
}

fn write_note(note: &Note, out: &mut impl Write) -> std::io::Result<()> {
    for line in note.text.lines().filter(|line| !line.starts_with("<!-- ")) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn field(name: &str, out: &mut impl Write) -> Result<(), Failure> {
    let found = notes::fields(name);
    if found.is_empty() {
        return Err(Failure::Usage(format!("no declared structure has a field `{name}`")));
    }
    for (desc, field) in found {
        write_field(desc, field, out)?;
    }
    Ok(())
}

fn write_field(desc: &Desc, field: &Field, out: &mut impl Write) -> std::io::Result<()> {
    let bits = match field.kind {
        Kind::Bits { .. } => {
            let (hi, lo) = field.hi_lo();
            format!("[{hi}:{lo}]")
        }
        Kind::Bytes | Kind::Struct(_) => format!("{} bytes", field.bit_width / 8),
    };
    let offset = field.dword_offset_bytes();
    writeln!(out, "{:<28} +0x{offset:02x} {bits:<8} {}", desc.name, notes::meaning(field))?;
    for value in notes::enumeration(field).map_or(&[][..], |e| e.values) {
        writeln!(out, "{:<28}   0x{:02x} {}", "", value.bits, value.name)?;
    }
    Ok(())
}
