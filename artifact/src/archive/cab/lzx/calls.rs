//! Calls of x86 code: the packer wrote where a call leads in the place of how far, as calls of one function are alike then. Here they are made as they were.

/// A byte that calls, and the bytes of a call.
const CALL: u8 = 0xe8;
const CALL_BYTES: usize = 5;

/// At the end of a frame so many bytes stay as they are.
const UNTOUCHED: usize = 10;

/// Frames from which on nothing is changed.
const LAST_FRAME: u32 = 32_768;

/// The state of a folder.
#[derive(Debug)]
pub(super) struct Calls {
    /// What places are counted within; 0 where nothing is changed.
    size: i32,
    /// Whether a byte that calls may have come.
    is_expected: bool,
    frame: u32,
    /// Unpacked bytes before the frame.
    before: i32,
}

impl Calls {
    pub(super) fn new(size: u32) -> Self {
        Self { size: i32::from_le_bytes(size.to_le_bytes()), is_expected: false, frame: 0, before: 0 }
    }

    /// A block may hold calls.
    pub(super) fn expect(&mut self) {
        self.is_expected = true;
    }

    /// Changes a frame.
    pub(super) fn make_relative(&mut self, frame: &mut [u8]) {
        let (number, before, length) = (self.frame, self.before, frame.len());
        self.frame = self.frame.saturating_add(1);
        self.before = self.before.wrapping_add(i32::try_from(length).unwrap_or_default());
        if !self.is_expected || self.size <= 0 || number >= LAST_FRAME || length <= UNTOUCHED {
            return;
        }
        let mut at = 0;
        let end = length.saturating_sub(UNTOUCHED);
        while let Some(found) = frame.get(at..end).and_then(|rest| memchr::memchr(CALL, rest)) {
            at = at.saturating_add(found);
            let place = before.wrapping_add(i32::try_from(at).unwrap_or_default());
            let behind = frame.get_mut(at.saturating_add(1)..).and_then(<[u8]>::first_chunk_mut::<4>);
            if let Some(target) = behind {
                let absolute = i32::from_le_bytes(*target);
                if absolute >= place.wrapping_neg() && absolute < self.size {
                    let relative =
                        if absolute >= 0 { absolute.wrapping_sub(place) } else { absolute.wrapping_add(self.size) };
                    *target = relative.to_le_bytes();
                }
            }
            at = at.saturating_add(CALL_BYTES);
        }
    }
}
