//! The addr2line crate, on decompressed sections in memory: its fastest setting.

use super::{Peer, Sum};
use crate::subject::{DwarfSections, Slice};
use addr2line::Context;
use anyhow::Result;

pub struct Addr2line<'a> {
    context: Context<Slice<'a>>,
}

impl<'a> Addr2line<'a> {
    pub fn open(sections: &'a DwarfSections<'_>) -> Result<Self> {
        Ok(Self { context: Context::from_dwarf(sections.dwarf()?)? })
    }
}

impl Peer for Addr2line<'_> {
    fn name(&self) -> &'static str {
        "addr2line"
    }

    fn all(&self, addresses: &[u64]) -> Sum {
        let mut sum = Sum::default();
        for address in addresses {
            let Ok(mut frames) = self.context.find_frames(*address).skip_all_loads() else { continue };
            let mut any = 0;
            while let Ok(Some(frame)) = frames.next() {
                let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
                let location = frame.location.as_ref();
                let file = location.and_then(|location| location.file).unwrap_or("");
                let line = location.and_then(|location| location.line).unwrap_or(0);
                sum.frame(name.as_deref().unwrap_or(""), file, line);
                any = 1;
            }
            sum.hits += any;
        }
        sum
    }
}
