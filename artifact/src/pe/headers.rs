//! DOS header, PE headers and section table of either size, in one form.

use super::debug::DebugDirectory;
use super::section::{Section, sections};
use super::symbols::CoffTable;
use crate::error::malformed;
use crate::fields::range_of;
use crate::{Arch, ArtifactError};
use object::LittleEndian as LE;
use object::pe;
use object::read::pe::{DataDirectories, ImageNtHeaders, ImageOptionalHeader};

/// What the optional header starts with in a file of 64 bits ("PE32+").
const PE32_PLUS: u16 = 0x20b;
/// And in one of 32 bits.
const PE32: u16 = 0x10b;

/// A PE file whose header tables and sections lie within it.
#[derive(Debug)]
pub(crate) struct Pe<'d> {
    pub(crate) is_64: bool,
    machine: u16,
    pub(crate) file_bytes: u64,
    pub(crate) is_dll: bool,
    timestamp: u32,
    size_of_image: u32,
    /// Stated address of relative address 0.
    pub(crate) image_base: u64,
    /// By address, not overlapping.
    pub(crate) sections: Vec<Section<'d>>,
    pub(crate) symbols: CoffTable<'d>,
    pub(crate) debug: DebugDirectory<'d>,
    pub(crate) exports: Option<Directory>,
    pub(crate) exceptions: Option<Directory>,
    pub(crate) load_config: Option<Directory>,
    pub(crate) cli_header: Option<Directory>,
}

/// Where a data directory lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory {
    /// Relative address.
    pub(crate) rva: u32,
    /// Bytes.
    pub(crate) size: u32,
}

/// The fields that both sizes of headers have.
struct Fields<'d> {
    is_64: bool,
    file: &'d pe::ImageFileHeader,
    image_base: u64,
    size_of_image: u32,
    directories: DataDirectories<'d>,
    /// File offset of the section table.
    sections_at: u64,
}

impl<'d> Pe<'d> {
    pub(crate) fn parse(data: &'d [u8]) -> Result<Self, ArtifactError> {
        let fields = fields(data)?;
        let file = fields.file;
        let symbols = CoffTable::parse(data, file);
        let table_size =
            u64::from(file.number_of_sections.get(LE)).saturating_mul(pe::IMAGE_SIZEOF_SECTION_HEADER as u64);
        let table = range_of(data, "the section table", fields.sections_at, table_size)?;
        let sections = sections(data, table, &symbols)?;
        let directory = |index: usize| {
            let directory = fields.directories.get(index)?;
            let (rva, size) = directory.address_range();
            (rva != 0 && size != 0).then_some(Directory { rva, size })
        };
        let mut parsed = Self {
            is_64: fields.is_64,
            machine: file.machine.get(LE).0,
            file_bytes: data.len() as u64,
            is_dll: file.characteristics.get(LE).contains(pe::IMAGE_FILE_DLL),
            timestamp: file.time_date_stamp.get(LE),
            size_of_image: fields.size_of_image,
            image_base: fields.image_base,
            sections,
            symbols,
            debug: DebugDirectory::default(),
            exports: directory(pe::IMAGE_DIRECTORY_ENTRY_EXPORT),
            exceptions: directory(pe::IMAGE_DIRECTORY_ENTRY_EXCEPTION),
            load_config: directory(pe::IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG),
            cli_header: directory(pe::IMAGE_DIRECTORY_ENTRY_COM_DESCRIPTOR),
        };
        if let Some(directory) = directory(pe::IMAGE_DIRECTORY_ENTRY_DEBUG) {
            parsed.debug = DebugDirectory::parse(&parsed, data, directory)?;
        }
        Ok(parsed)
    }

    /// As symbol servers write it: the time stamp (of a reproducible build a hash) and the size of the image.
    pub(crate) fn code_id(&self) -> String {
        format!("{:08X}{:x}", self.timestamp, self.size_of_image)
    }

    pub(crate) fn arch(&self) -> Arch {
        Arch::from_coff(self.machine)
    }

    /// Whether .NET's compilers made it for another system than Windows.
    pub(crate) fn is_for_another_system(&self) -> bool {
        Arch::coff_system(self.machine).is_some()
    }

    pub(crate) fn section_at(&self, rva: u32) -> Option<&Section<'d>> {
        let after = self.sections.partition_point(|section| section.rva <= rva);
        self.sections.get(after.checked_sub(1)?)
    }

    /// The stored bytes from a relative address to the end of its section.
    pub(crate) fn bytes_at(&self, rva: u32) -> Option<&'d [u8]> {
        let section = self.section_at(rva)?;
        section.bytes.get(usize::try_from(rva.checked_sub(section.rva)?).ok()?..)
    }

    /// The bytes of a data directory that the file holds.
    pub(crate) fn directory_bytes(&self, directory: Directory) -> Option<&'d [u8]> {
        let bytes = self.bytes_at(directory.rva)?;
        bytes.get(..usize::try_from(directory.size).ok()?.min(bytes.len()))
    }
}

fn fields(data: &[u8]) -> Result<Fields<'_>, ArtifactError> {
    range_of(data, "the DOS header", 0, size_of::<pe::ImageDosHeader>() as u64)?;
    let dos = pe::ImageDosHeader::parse(data).map_err(|error| malformed("the DOS header", "MZ", error))?;
    let at = u64::from(dos.nt_headers_offset());
    // Both sizes of headers are alike up to the magic number of the optional one.
    let common = range_of(data, "the PE header", at, 26)?;
    if common.get(..4) != Some(b"PE\0\0") {
        return Err(malformed("the PE header", "PE and two zero bytes", escaped_start(common)));
    }
    let magic = match common.get(24..26) {
        Some([low, high]) => u16::from_le_bytes([*low, *high]),
        _ => 0,
    };
    match magic {
        PE32 => fields_of::<pe::ImageNtHeaders32>(data, at),
        PE32_PLUS => fields_of::<pe::ImageNtHeaders64>(data, at),
        other => Err(malformed("the optional header", "magic 0x10b (PE32) or 0x20b (PE32+)", format!("{other:#x}"))),
    }
}

fn fields_of<Pe: ImageNtHeaders>(data: &[u8], at: u64) -> Result<Fields<'_>, ArtifactError> {
    range_of(data, "the PE headers", at, size_of::<Pe>() as u64)?;
    let mut offset = at;
    let (headers, directories) = Pe::parse(data, &mut offset)
        .map_err(|error| malformed("the optional header", "data directories within it and the file", error))?;
    let optional = headers.optional_header();
    Ok(Fields {
        is_64: headers.is_type_64(),
        file: headers.file_header(),
        image_base: optional.image_base(),
        size_of_image: optional.size_of_image(),
        directories,
        sections_at: offset,
    })
}

fn escaped_start(bytes: &[u8]) -> String {
    format!("{:?}", crate::escaped(bytes.get(..4).unwrap_or(bytes)))
}
