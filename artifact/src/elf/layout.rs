//! Addresses for the sections of a relocatable object, which has none yet.
//!
//! The order is the one in which the Linux kernel lays out a module, so that an offset in a loaded module's text is an
//! address here: first the executable sections but those for initialization, in the order of their headers, each at the
//! next multiple of its alignment, the first at 0; then, from a new page on, the executable ones for initialization
//! (`.init…`), which the kernel places elsewhere; then the others that are loaded. (Linux, kernel/module/main.c,
//! `layout_sections`)
//!
//! In a file with one executable section an address is thus an offset in it, as binutils' and LLVM's tools have it.

use super::headers::Section;

const PAGE: u64 = 0x1000;

/// Gives every section that is loaded a range of its own. Sections that would not fit 64 bits stay at 0.
pub(super) fn place(sections: &mut [Section<'_>]) {
    let is_init = |section: &Section<'_>| section.name.starts_with(b".init");
    let mut reached = 0;
    for part in 0..3 {
        for section in sections.iter_mut().filter(|section| section.is_allocated() && section.addr == 0) {
            let own = match (section.is_executable(), is_init(section)) {
                (true, false) => 0,
                (true, true) => 1,
                (false, _) => 2,
            };
            if own == part {
                reached = after(section, reached).unwrap_or(reached);
            }
        }
        reached = u64::checked_next_multiple_of(reached, PAGE).unwrap_or(reached);
    }
}

/// Places a section behind the others; where it ends.
fn after(section: &mut Section<'_>, reached: u64) -> Option<u64> {
    let start = reached.checked_next_multiple_of(section.align.max(1))?;
    let end = start.checked_add(section.size)?;
    section.addr = start;
    Some(end)
}
