//! The caller's buffer for names.
#![allow(unsafe_code, reason = "memory of C programs")]

use core::ffi::c_char;
use core::ptr::null;

use symseal_symx::Name;

/// Texts one after the other, each terminated. One that comes twice in a row from one place is there once.
pub(crate) struct TextBuffer<'n> {
    start: *mut u8,
    size: usize,
    used: usize,
    /// Of each use, where what was written last came from.
    last: [(&'n [u8], *const c_char); 3],
    /// Some text had no room.
    pub(crate) overflowed: bool,
    /// Bytes that all texts would have taken.
    pub(crate) needed: usize,
}

/// What a text is: repeated ones are so by their use.
#[derive(Clone, Copy)]
pub(crate) enum TextUse {
    Function = 0,
    Symbol = 1,
    File = 2,
}

impl<'n> TextBuffer<'n> {
    /// # Safety
    /// `start` has `size` bytes that nobody else uses meanwhile; it may be null where the size is 0.
    pub(crate) unsafe fn new(start: *mut c_char, size: usize) -> Self {
        Self { start: start.cast(), size, used: 0, last: [(&[], null()); 3], overflowed: false, needed: 0 }
    }

    /// The text in the buffer; null for an empty one and for one that has no room.
    pub(crate) fn put(&mut self, text: &'n [u8], used_for: TextUse) -> *const c_char {
        self.put_pieces(text, core::iter::once(text), used_for)
    }

    /// [`Self::put`], of a name of a table.
    pub(crate) fn put_name(&mut self, name: Name<'n>, used_for: TextUse) -> *const c_char {
        self.put_pieces(name.stored(), name.pieces(), used_for)
    }

    fn put_pieces(
        &mut self,
        place: &'n [u8],
        pieces: impl Iterator<Item = &'n [u8]> + Clone,
        used_for: TextUse,
    ) -> *const c_char {
        // A zero in a name would end it early, so it does.
        let text = || pieces.clone().flatten().take_while(|byte| **byte != 0);
        let len = text().count();
        if len == 0 {
            return null();
        }
        let Some(last) = self.last.get_mut(used_for as usize) else { return null() };
        // Also where it had no room: it is needed once.
        if core::ptr::eq(last.0, place) {
            return last.1;
        }
        let bytes = len.saturating_add(1);
        self.needed = self.needed.saturating_add(bytes);
        let Some(end) = self.used.checked_add(bytes).filter(|end| *end <= self.size) else {
            self.overflowed = true;
            *last = (place, null());
            return null();
        };
        // SAFETY: from used to end lies within the buffer.
        let at = unsafe {
            let at = self.start.add(self.used);
            for (offset, byte) in text().enumerate() {
                at.add(offset).write(*byte);
            }
            at.add(len).write(0);
            at.cast_const().cast()
        };
        self.used = end;
        *last = (place, at);
        at
    }
}
