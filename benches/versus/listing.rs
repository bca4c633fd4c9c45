//! The instructions that one call executes, in order, as objdump writes them: to see where they go.

use std::{collections::HashMap, ffi::CStr, fmt::Write, process::Command};

/// Disassembled files: instructions by place.
#[derive(Default)]
pub struct Listings(HashMap<String, HashMap<usize, String>>);

impl Listings {
    /// A trace as text: where the code is each time that this changes, then the instructions.
    pub fn text(&mut self, trace: &[usize]) -> String {
        let mut text = String::new();
        let mut current = String::new();
        for address in trace {
            let Some((file, place, name)) = find(*address) else {
                writeln!(text, "    {address:#x}").expect("a string");
                continue;
            };
            if name != current {
                writeln!(text, "  {name}:").expect("a string");
                current = name;
            }
            let lines = self.0.entry(file).or_insert_with_key(|file| disassemble(file));
            let instruction = lines.get(&place).map_or("?", String::as_str);
            writeln!(text, "    {place:x}: {instruction}").expect("a string");
        }
        text
    }
}

/// The file that an address is of, the place in it, and the name of what is there.
fn find(address: usize) -> Option<(String, usize, String)> {
    // SAFETY: plain pointers.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    if unsafe { libc::dladdr(address as *const _, &mut found) } == 0 {
        return None;
    }
    // SAFETY: the loader's strings, which stay as long as the file is loaded.
    let text = |at: *const libc::c_char| unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned();
    let file = text(found.dli_fname);
    let name = if found.dli_sname.is_null() { file.clone() } else { text(found.dli_sname) };
    Some((file, address - found.dli_fbase.addr(), name))
}

/// What objdump says of a file; nothing if it cannot be asked.
fn disassemble(file: &str) -> HashMap<usize, String> {
    let output =
        Command::new("objdump").args(["--disassemble", "--no-show-raw-insn", "--demangle", file]).output();
    let Ok(output) = output else {
        eprintln!("objdump is not here (apt install binutils): addresses only");
        return HashMap::new();
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let (place, instruction) = line.split_once(":\t")?;
            Some((usize::from_str_radix(place.trim(), 16).ok()?, instruction.trim().to_owned()))
        })
        .collect()
}
