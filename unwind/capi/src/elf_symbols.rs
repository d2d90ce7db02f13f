//! The functions of an ELF file, sorted when somebody first asks.
#![allow(unsafe_code, reason = "an index that is published once")]

use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use symseal_dwunw_elf::{Functions, SymbolBytes, SymbolHit};

use crate::status::dwunw_status as S;

/// The functions of a file.
pub(crate) struct Symbols {
    bytes: SymbolBytes<'static>,
    sorted: AtomicPtr<Functions<'static>>,
}

impl Symbols {
    pub(crate) fn new(bytes: SymbolBytes<'static>) -> Self {
        Self { bytes, sorted: AtomicPtr::new(null_mut()) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The function at the stated address.
    pub(crate) fn find(&self, address: u64) -> Result<SymbolHit<'_>, S> {
        self.sorted()?.find(address).ok_or(S::NoSymbolAtAddress)
    }

    /// Made by the first who asks; who comes at the same time makes it too, and one of the two is kept.
    fn sorted(&self) -> Result<&Functions<'static>, S> {
        let mut known = self.sorted.load(Ordering::Acquire);
        if known.is_null() {
            let made = Box::into_raw(Box::new(Functions::new(self.bytes.clone()).map_err(S::of_elf)?));
            match self.sorted.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => known = made,
                Err(other) => {
                    // SAFETY: nobody else has seen it.
                    drop(unsafe { Box::from_raw(made) });
                    known = other;
                }
            }
        }
        // SAFETY: published once, and dropped with self alone.
        Ok(unsafe { &*known })
    }
}

impl Drop for Symbols {
    fn drop(&mut self) {
        let known = *self.sorted.get_mut();
        if !known.is_null() {
            // SAFETY: made by Box::into_raw, and seen through self alone.
            drop(unsafe { Box::from_raw(known) });
        }
    }
}
