//! Archives that are made here, byte by byte where no tool would make such.
#![allow(dead_code, reason = "each program that has this module uses its own part")]

/// A tar of these files.
pub(crate) fn tar_of(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, *bytes).expect("a file");
    }
    tar.into_inner().expect("a tar")
}

/// A zip of these members, each with the offset of its local header; the bytes of the first lie at the beginning.
pub(crate) fn zip_of(members: &[(&str, u32)], content: &[u8]) -> Vec<u8> {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    let size = content.len() as u32;
    let mut zip = b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0".to_vec();
    for word in [crc.sum(), size, size] {
        zip.extend(word.to_le_bytes());
    }
    zip.extend([1, 0, 0, 0, b'a']);
    zip.extend(content);
    let directory = zip.len() as u32;
    for (name, offset) in members {
        zip.extend(b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0");
        for word in [crc.sum(), size, size] {
            zip.extend(word.to_le_bytes());
        }
        zip.extend((name.len() as u16).to_le_bytes());
        zip.extend([0; 12]);
        zip.extend(offset.to_le_bytes());
        zip.extend(name.as_bytes());
    }
    let directory_size = zip.len() as u32 - directory;
    zip.extend(b"PK\x05\x06\0\0\0\0");
    zip.extend((members.len() as u16).to_le_bytes());
    zip.extend((members.len() as u16).to_le_bytes());
    for word in [directory_size, directory] {
        zip.extend(word.to_le_bytes());
    }
    zip.extend([0, 0]);
    zip
}
