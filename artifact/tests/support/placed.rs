//! Relocatable objects, linked where we place their sections, so that other readers can be asked for addresses.

use super::{any_of, run};
use std::path::{Path, PathBuf};

/// An executable section of an object: its name, where it is placed, and its size in bytes.
pub(crate) struct Placed {
    pub(crate) name: String,
    pub(crate) start: u64,
    pub(crate) size: u64,
}

/// The executable sections in the order of their headers, those for initialization last and in a page of their own, as
/// the Linux kernel lays out a module.
pub(crate) fn placed(path: &Path) -> Vec<Placed> {
    let text = run("readelf", &["-SW", &path.display().to_string()], Path::new(".")).expect("readelf");
    let mut found = Vec::new();
    for line in text.lines().filter_map(|line| line.split_once(']').map(|(_, rest)| rest)) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [name, "PROGBITS", _, _, size, _, flags, .., align] = fields.as_slice()
            && flags.contains('X')
        {
            let size = u64::from_str_radix(size, 16).expect("a size");
            found.push(((*name).to_owned(), size, align.parse::<u64>().expect("an alignment")));
        }
    }
    let mut reached = 0_u64;
    let mut placed = Vec::new();
    for init in [false, true] {
        for (name, size, align) in found.iter().filter(|(name, _, _)| name.starts_with(".init") == init) {
            reached = reached.next_multiple_of((*align).max(1));
            placed.push(Placed { name: name.clone(), start: reached, size: *size });
            reached += size;
        }
        reached = reached.next_multiple_of(0x1000);
    }
    placed
}

/// Where [`linked`] puts what an object has at 0.
pub(crate) const LINKED_AT: u64 = 0x10_0000;

/// The object, linked so that each of its executable sections has an address of its own. None without a linker.
pub(crate) fn linked(object: &Path, folder: &Path) -> Option<PathBuf> {
    let linker = any_of(&["ld.lld-19", "ld.lld", "ld.lld-14"])?;
    let part = |section: &Placed| {
        let Placed { name, start, .. } = section;
        format!("  {name} {:#x} : {{ *({name}) }}\n", LINKED_AT + start)
    };
    let sections: String = placed(object).iter().filter(|section| section.size > 0).map(part).collect();
    let name = object.file_name().expect("a name").to_string_lossy();
    let (script, output) = (folder.join(format!("{name}.ld")), folder.join(format!("{name}.linked")));
    std::fs::write(
        &script,
        format!("SECTIONS {{\n{sections}  .rest 0x10000000 : {{ *(.data* .rodata* .bss*) }}\n}}\n"),
    )
    .expect("a script");
    let [script, from, to] = [script.as_path(), object, &output].map(|path| path.display().to_string());
    let arguments = ["--noinhibit-exec", "--unresolved-symbols=ignore-all", "-e", "0", "-T", &script, "-o", &to, &from];
    run(linker, &arguments, folder)?;
    Some(output)
}
