//! The blocks of a folder, one after the other.

use std::io::{self, Read};

use flate2::{Decompress, FlushDecompress, Status};

use super::lzx::Lzx;
use super::{Folder, Packing, invalid, u16_at, u32_at};

/// Bytes of a block's header.
const BLOCK: usize = 8;

/// Unpacked bytes of a block, and what the next one of MSZIP may refer to.
pub(super) const WINDOW: usize = 32 << 10;

/// What every block of MSZIP begins with.
const MSZIP_MAGIC: &[u8] = b"CK";

/// The unpacked bytes of a folder.
pub(super) struct Blocks<R> {
    input: R,
    left: u16,
    unpacker: Unpacker,
    reserved: u8,
    /// What a block is unpacked from.
    packed: Vec<u8>,
    /// The block that is read, and where in it.
    block: Vec<u8>,
    at: usize,
}

/// What makes a block's bytes of the packed ones, with what it keeps from block to block.
enum Unpacker {
    Stored,
    Mszip(Decompress),
    Lzx(Box<Lzx>),
}

impl<R: Read> Blocks<R> {
    pub(super) fn new(input: R, folder: Folder, reserved: u8) -> Self {
        let unpacker = match folder.packing {
            Packing::Mszip => Unpacker::Mszip(Decompress::new(false)),
            Packing::Lzx(bits) => Unpacker::Lzx(Box::new(Lzx::new(bits))),
            Packing::Stored | Packing::Other(_) => Unpacker::Stored,
        };
        Self { input, left: folder.blocks, unpacker, reserved, packed: Vec::new(), block: Vec::new(), at: 0 }
    }

    fn next_block(&mut self) -> io::Result<()> {
        let mut header = [0; BLOCK];
        self.input.read_exact(&mut header)?;
        let (stated, packed, unpacked) = (u32_at(&header, 0), u16_at(&header, 4), u16_at(&header, 6));
        let mut reserved = vec![0; self.reserved.into()];
        self.input.read_exact(&mut reserved)?;
        self.packed.resize(packed.into(), 0);
        self.input.read_exact(&mut self.packed)?;
        let sum = checksum(&self.packed) ^ checksum(&reserved) ^ u32_at(&header, 4);
        if stated != 0 && stated != sum {
            return Err(invalid(&format!("a block with the checksum {sum:#010x} in the place of {stated:#010x}")));
        }
        let unpacked = usize::from(unpacked);
        if unpacked == 0 || unpacked > WINDOW {
            return Err(invalid(&format!("a block of {unpacked} unpacked bytes in the place of 1 to {WINDOW}")));
        }
        self.at = 0;
        match &mut self.unpacker {
            Unpacker::Stored => std::mem::swap(&mut self.block, &mut self.packed),
            Unpacker::Mszip(inflate) => self.block = inflated(inflate, &self.packed, &self.block, unpacked)?,
            Unpacker::Lzx(lzx) => lzx.frame(&self.packed, unpacked, &mut self.block)?,
        }
        if self.block.len() != unpacked {
            return Err(invalid(&format!("a block of {} unpacked bytes in the place of {unpacked}", self.block.len())));
        }
        Ok(())
    }
}

/// One block of MSZIP. The one before comes first, as a stored block of deflate, so that it is there to be referred to.
fn inflated(inflate: &mut Decompress, packed: &[u8], before: &[u8], unpacked: usize) -> io::Result<Vec<u8>> {
    let Some(packed) = packed.strip_prefix(MSZIP_MAGIC) else {
        return Err(invalid("a block that does not begin with CK"));
    };
    inflate.reset(false);
    let mut out = Vec::with_capacity(before.len().saturating_add(unpacked));
    if let Ok(length) = u16::try_from(before.len())
        && length > 0
    {
        let mut stored = vec![0];
        stored.extend_from_slice(&length.to_le_bytes());
        stored.extend_from_slice(&(!length).to_le_bytes());
        stored.extend_from_slice(before);
        inflate.decompress_vec(&stored, &mut out, FlushDecompress::None).map_err(io::Error::other)?;
    }
    let status = inflate.decompress_vec(packed, &mut out, FlushDecompress::Finish).map_err(io::Error::other)?;
    if status != Status::StreamEnd || out.len() < before.len() {
        return Err(invalid("a deflate stream that does not end with its block"));
    }
    Ok(out.split_off(before.len()))
}

impl<R: Read> Read for Blocks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.block.len() {
            let Some(left) = self.left.checked_sub(1) else { return Ok(0) };
            self.left = left;
            self.next_block()?;
        }
        let mut rest = self.block.get(self.at..).unwrap_or_default();
        let read = rest.read(buffer)?;
        self.at = self.at.saturating_add(read);
        Ok(read)
    }
}

/// All words exclusive-or; of what is left the bytes in the order of the most significant first.
fn checksum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum = words.iter().fold(0, |sum, word| sum ^ u32::from_le_bytes(*word));
    sum ^ rest.iter().fold(0, |last, byte| last << 8 | u32::from(*byte))
}
