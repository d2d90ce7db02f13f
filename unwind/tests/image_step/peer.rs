//! framehop at every instruction of an image.

use std::ops::Range;
use std::sync::Arc;

use framehop::aarch64::UnwinderAarch64;
use framehop::x86_64::UnwinderX86_64;
use symseal_unwind::Arch;

use crate::framehop_peer::{self, Framehop, OfFile};
use crate::image::Image;
use crate::trace::{Instant, STACK_BYTES, STACK_TOP};

/// More than any stack of the programs has.
const MOST_FRAMES: usize = 128;
/// The bits that addresses have on macOS.
const ADDRESSES: u64 = (1 << 47) - 1;

/// Its unwinder with the image, by processor.
pub(crate) enum Peer {
    X86_64(Framehop<UnwinderX86_64<Arc<[u8]>>>),
    Aarch64(Framehop<UnwinderAarch64<Arc<[u8]>>>),
}

impl Peer {
    /// None where it does not read what such files have.
    pub(crate) fn of(image: &Image<'_>, bytes: &[u8], avma: Range<u64>) -> Option<Self> {
        let info = OfFile { file: object::File::parse(bytes).expect("an image"), base: image.base };
        match (image.arch, image.pdata.is_some()) {
            (Arch::X86_64, _) => {
                let mut framehop = Framehop::default();
                framehop.add_image("image", avma, info);
                Some(Self::X86_64(framehop))
            }
            (Arch::Aarch64, false) => {
                let mut framehop = Framehop::default();
                framehop.add_image("image", avma, info);
                Some(Self::Aarch64(framehop))
            }
            // "PE unwinding of aarch64 is unsupported", it says.
            _ => None,
        }
    }

    /// Whether it finds all return addresses.
    pub(crate) fn is_right(&mut self, now: &Instant<'_>, arch: Arch) -> bool {
        let general = |number: usize| now.general.get(number).copied().unwrap_or_default();
        let sp = general(usize::from(arch.stack_pointer()));
        let read = |address: u64| {
            let at = address.checked_sub(STACK_TOP - STACK_BYTES as u64).filter(|_| address >= sp)?;
            Some(u64::from_le_bytes(*now.stack.get(usize::try_from(at).ok()?..)?.first_chunk()?))
        };
        let found = match self {
            Self::X86_64(framehop) => {
                framehop.callers(now.pc, framehop_peer::x86_64(now.pc, general), read, MOST_FRAMES)
            }
            Self::Aarch64(framehop) => {
                let registers = framehop_peer::aarch64(ADDRESSES, general);
                framehop.callers(now.pc, registers, read, MOST_FRAMES)
            }
        };
        now.above.iter().map(|above| above.pc).filter(|pc| *pc != 0).eq(found)
    }
}
