//! Program databases made by hand: a container of streams with nothing but what frame data needs. (LLVM, "The MSF File Format")

#![allow(dead_code, unreachable_pub, reason = "each test file has this module and uses its own part")]
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

const PAGE: usize = 4096;
const MAGIC: &[u8; 32] = b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0";

/// "No such stream".
const NONE: u16 = 0xffff;

/// What a PDB of 32-bit x86 says of frames.
#[derive(Debug, Default)]
pub(crate) struct Pdb {
    /// The texts of `/names`.
    pub(crate) names: Vec<u8>,
    /// Records of 16 bytes, and of 32.
    pub(crate) old_frames: Vec<u8>,
    pub(crate) new_frames: Vec<u8>,
    /// Where code was moved: address before, address in the image.
    pub(crate) moved: Vec<(u32, u32)>,
}

impl Pdb {
    /// The file.
    pub(crate) fn write(&self) -> Vec<u8> {
        let moved: Vec<u8> =
            self.moved.iter().flat_map(|(from, to)| [from.to_le_bytes(), to.to_le_bytes()]).flatten().collect();
        let text_size = u32::try_from(self.names.len()).expect("a small text");
        let names =
            [&0xeffe_effe_u32.to_le_bytes(), &1_u32.to_le_bytes(), &text_size.to_le_bytes(), &self.names[..]].concat();
        let number = |stream: &[u8], number: u16| if stream.is_empty() { NONE } else { number };
        let mut places = [NONE; 11];
        (places[0], places[4], places[5], places[9]) =
            (number(&self.old_frames, 5), number(&moved, 7), 8, number(&self.new_frames, 6));
        container(&[
            &[],
            &information(4),
            &[],
            &debug_information(&places),
            &names,
            &self.old_frames,
            &self.new_frames,
            &moved,
            &section(),
        ])
    }
}

fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Version, time, age, GUID, and the map of names: `/names` alone.
fn information(names: u32) -> Vec<u8> {
    let head = words([20_000_404, 0, 1, 1, 2, 3, 4]);
    let map = words([1, 1, 1, 1, 0, 0, names]);
    [&head[..], &7_u32.to_le_bytes(), b"/names\0", &map].concat()
}

/// A header without any of the substreams but the last.
fn debug_information(places: &[u16]) -> Vec<u8> {
    let mut header = vec![0; 64];
    header[..4].fill(0xff);
    header[4..12].copy_from_slice(&words([19_990_903, 1]));
    header[48..52].copy_from_slice(&words([places.len() as u32 * 2]));
    header[58..60].copy_from_slice(&0x14c_u16.to_le_bytes());
    header.extend(places.iter().flat_map(|place| place.to_le_bytes()));
    header
}

/// `.text`, at 0x1000 and as large as can be.
fn section() -> Vec<u8> {
    [b".text\0\0\0".to_vec(), words([0x7000_0000, 0x1000, 0x7000_0000, 0x400, 0, 0, 0, 0x6000_0020])].concat()
}

fn container(streams: &[&[u8]]) -> Vec<u8> {
    // The header, two maps of free pages, and the place of the directory's pages.
    let mut file = vec![0; 4 * PAGE];
    let mut add = |bytes: &[u8]| -> Vec<u32> {
        let first = file.len() / PAGE;
        file.extend(bytes);
        file.resize(file.len().next_multiple_of(PAGE), 0);
        (first..file.len() / PAGE).map(|page| page as u32).collect()
    };
    let pages: Vec<Vec<u32>> = streams.iter().map(|stream| add(stream)).collect();
    let sizes = streams.iter().map(|stream| stream.len() as u32);
    let directory = words([streams.len() as u32].into_iter().chain(sizes).chain(pages.into_iter().flatten()));
    let of_directory = words(add(&directory));
    let count = file.len() / PAGE;
    file[..32].copy_from_slice(MAGIC);
    file[32..56].copy_from_slice(&words([PAGE as u32, 1, count as u32, directory.len() as u32, 0, 3]));
    file[3 * PAGE..3 * PAGE + of_directory.len()].copy_from_slice(&of_directory);
    file
}
