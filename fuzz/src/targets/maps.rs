//! /proc/PID/maps, and the program headers and notes of ELF images.

use symseal_module::Avma;
use symseal_process::{ElfImage, maps};

pub(super) fn run(data: &[u8]) {
    if let Ok(mappings) = maps::parse(data) {
        for mapping in &mappings {
            assert!(mapping.contains(mapping.start) && !mapping.contains(mapping.end));
            let _ = (mapping.map_files_name(), mapping.is_file());
        }
        let _ = maps::find(&mappings, Avma(0x1000));
    }
    let read = |offset: u64, out: &mut [u8]| {
        let from = usize::try_from(offset).ok().and_then(|from| data.get(from..)?.get(..out.len()));
        from.map(|from| out.copy_from_slice(from)).is_some()
    };
    if let Ok(image) = ElfImage::read(read) {
        let _ = image.build_id(|segment, out| read(segment.offset, out));
        let _ = (image.bias(0x7f00_0000_0000, 0x1000), image.image_base(), image.image_end());
    }
}
