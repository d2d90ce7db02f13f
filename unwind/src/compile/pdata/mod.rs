//! The exception directory of Windows modules: `.pdata`, and what it leads to in the image.

mod aarch64;
mod bare;
mod image;
mod x86_64;

use super::pieces::Origin;
use super::{Compiler, Input};
use crate::arch::Arch;
use crate::rule::{Kind, RuleSource};
use crate::source::SourceKind;
use image::Image;

use super::layout::Layout;

/// Marks code of another processor than the table's, which the exception directory does not speak of.
pub(super) fn foreign(input: &Input<'_>, compiler: &mut Compiler<'_>) {
    const FOREIGN: &str = "code of the other processor of a file for two (ARM64EC, ARM64X)";
    for range in input.foreign.iter().filter(|range| range.start < range.end) {
        let claimed = compiler.claims.claim(range.clone());
        compiler.unsupported(&claimed, Origin::new(SourceKind::Pdata, 0), RuleSource::Pdata, FOREIGN);
    }
}

/// Adds the rules of the functions that the exception directory describes.
pub(super) fn rules(input: &Input<'_>, compiler: &mut Compiler<'_>) {
    let Some((_, directory)) = input.pdata else { return };
    let image = Image::new(input.image_base.0, input.loaded, input.code);
    match input.arch {
        Arch::X86_64 => x86_64::rules(directory, &image, compiler),
        Arch::Aarch64 => aarch64::rules(directory, &image, compiler),
        _ => {}
    }
}

/// Code that nothing describes, in a module that has an exception directory, is a leaf: it neither moves the stack pointer nor changes
/// a register that it would have to keep. (Microsoft, "x64 exception handling", leaf functions; "ARM64 exception handling")
pub(super) fn leaves(input: &Input<'_>, compiler: &mut Compiler<'_>) {
    let machine = input.arch.machine();
    if input.pdata.is_none_or(|(_, directory)| directory.is_empty()) {
        return;
    }
    let Some(mut leaf) = Layout::entry(machine).rule(machine, RuleSource::Pdata) else { return };
    // Where the return address is in a register, that says that no call has been made. Else the rule itself has to.
    if machine.link.is_none() {
        leaf.0 = leaf.0.with_kind(Kind::Leaf);
    }
    for (start, bytes) in input.code {
        let Some(end) = start.checked_add(bytes.len() as u64) else { continue };
        for part in compiler.claims.claim(*start..end) {
            compiler.add(
                core::slice::from_ref(&part),
                &[(part.start, leaf)],
                Origin::new(SourceKind::PdataLeaf, part.start),
            );
        }
    }
}
