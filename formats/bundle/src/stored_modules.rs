//! The modules of a bundle in a store of our own: found without reading JSON. `docs/formats/stored_modules.md` describes the form.
//!
//! It is made of the symbol index when names of the bundle are first asked for, and can be made again at any time.

use std::cmp::Ordering;

use symseal_module::{DebugId, Svma, crc32};

use crate::module_facts::TableFacts;
use crate::{DebugInfo, Digest, ModuleFacts, SymbolIndex};

/// The first eight bytes.
pub const MAGIC: [u8; 8] = *b"SYMMODS\0";

/// The one version that is read and written.
pub const VERSION: u32 = 2;

/// Bytes before the places.
const HEADER_BYTES: usize = 88;

/// Bytes of a record's place: its offset and its checksum.
const PLACE_BYTES: usize = 8;

/// Where the checksum of the whole is, and behind it that of the header.
const CHECKSUM: usize = 80;
const HEADER_CHECKSUM: usize = 84;

const DIGEST_BYTES: usize = 32;

/// The forms of debug information, by their number.
const DEBUG_INFO: [DebugInfo; 4] = [DebugInfo::Full, DebugInfo::LineTables, DebugInfo::Symbols, DebugInfo::None];

/// Why some bytes are no list of modules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoredModulesError {
    /// It does not begin as one of this version does.
    #[error("not a list of modules of version {VERSION}")]
    Header,
    /// It does not end where its header and places say.
    #[error("the list of modules is cut or has something behind it: {found} bytes, {expected} expected")]
    Cut {
        /// Bytes that it would take, or its header and places alone.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// Its bytes are not those that were written.
    #[error("a checksum of the list of modules does not hold")]
    Checksum,
    /// Larger than the form can count.
    #[error("more modules, or larger ones, than a list of modules can hold")]
    TooLarge,
}

/// Writes the modules of the bundle `bundle`, whose symbol index has the digest `index_digest`.
///
/// # Errors
/// [`StoredModulesError::TooLarge`].
pub fn write(index: &SymbolIndex, index_digest: &Digest, bundle: &Digest) -> Result<Vec<u8>, StoredModulesError> {
    let mut records: Vec<(&str, Vec<u8>)> = Vec::new();
    for (_, id, module) in index.modules() {
        records.push((id, record(id, &ModuleFacts::from(module)).ok_or(StoredModulesError::TooLarge)?));
    }
    records.sort_unstable();
    assemble(records, bundle, index_digest)
}

/// Header, places and records, which are sorted.
fn assemble(
    records: Vec<(&str, Vec<u8>)>,
    bundle: &Digest,
    index_digest: &Digest,
) -> Result<Vec<u8>, StoredModulesError> {
    let count = u32::try_from(records.len()).map_err(|_| StoredModulesError::TooLarge)?;
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(bundle.as_bytes());
    bytes.extend_from_slice(index_digest.as_bytes());
    let of_header = crc32(&[&bytes]);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&of_header.to_le_bytes());
    let offset = |at: usize| u32::try_from(at).map(u32::to_le_bytes).map_err(|_| StoredModulesError::TooLarge);
    let mut at = HEADER_BYTES + PLACE_BYTES * records.len() + 4;
    for (_, record) in &records {
        bytes.extend_from_slice(&offset(at)?);
        bytes.extend_from_slice(&crc32(&[record]).to_le_bytes());
        at += record.len();
    }
    bytes.extend_from_slice(&offset(at)?);
    bytes.extend(records.into_iter().flat_map(|(_, record)| record));
    let checksum = crc32fast::hash(&bytes).to_le_bytes();
    if let Some(field) = bytes.get_mut(CHECKSUM..CHECKSUM + 4) {
        field.copy_from_slice(&checksum);
    }
    Ok(bytes)
}

fn record(id: &str, facts: &ModuleFacts) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let text = |body: &mut Vec<u8>, text: &str| -> Option<()> {
        body.extend_from_slice(&u32::try_from(text.len()).ok()?.to_le_bytes());
        body.extend_from_slice(text.as_bytes());
        Some(())
    };
    let digests = |body: &mut Vec<u8>, digests: &[Digest]| -> Option<()> {
        body.extend_from_slice(&u32::try_from(digests.len()).ok()?.to_le_bytes());
        digests.iter().for_each(|digest| body.extend_from_slice(digest.as_bytes()));
        Some(())
    };
    text(&mut body, id)?;
    text(&mut body, &facts.name)?;
    text(&mut body, facts.pdb.as_deref().unwrap_or_default())?;
    body.extend_from_slice(&facts.image_base.0.to_le_bytes());
    body.push(u8::try_from(DEBUG_INFO.iter().position(|known| *known == facts.debug_info)?).ok()?);
    body.push(u8::from(facts.table.is_some()));
    if let Some(table) = &facts.table {
        body.extend_from_slice(table.sha256.as_bytes());
        body.extend_from_slice(&table.size.to_le_bytes());
        digests(&mut body, &table.derived_from)?;
    }
    digests(&mut body, &facts.digests)?;
    Some(body)
}

/// A list of modules, read in place.
#[derive(Debug, Clone, Copy)]
pub struct StoredModules<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> StoredModules<'a> {
    /// Checks the header and its checksum, and that the list ends where it says. What is in it is checked when it is read.
    ///
    /// # Errors
    /// [`StoredModulesError`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, StoredModulesError> {
        let header = bytes.get(..HEADER_BYTES).ok_or(StoredModulesError::Header)?;
        let number = |at: usize| header.get(at..at + 4).and_then(|it| it.try_into().ok()).map(u32::from_le_bytes);
        if header.get(..8) != Some(&MAGIC) || number(8) != Some(VERSION) {
            return Err(StoredModulesError::Header);
        }
        if number(HEADER_CHECKSUM) != header.get(..CHECKSUM).map(|header| crc32(&[header])) {
            return Err(StoredModulesError::Checksum);
        }
        let count = number(12).unwrap_or_default() as usize;
        let expected = HEADER_BYTES as u64 + PLACE_BYTES as u64 * count as u64 + 4;
        let found = bytes.len() as u64;
        if found < expected {
            return Err(StoredModulesError::Cut { expected, found });
        }
        let list = Self { bytes, count };
        // Where the last record ends the file does.
        match list.offset(count) {
            Some(end) if end as u64 == found => Ok(list),
            end => Err(StoredModulesError::Cut { expected: end.unwrap_or_default() as u64, found }),
        }
    }

    /// The bundle's digest.
    pub fn bundle(&self) -> Digest {
        self.digest_at(16)
    }

    /// The digest of the bundle's symbol index.
    pub fn symbol_index(&self) -> Digest {
        self.digest_at(48)
    }

    /// How many modules there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The module with this id; what is found is as it was written. That there is none can be believed of a list only that [`Self::check`] finds whole, as
    /// damage elsewhere may have led the search astray.
    ///
    /// # Errors
    /// [`StoredModulesError::Checksum`] where damage was met.
    pub fn module(&self, id: &DebugId) -> Result<Option<ModuleFacts>, StoredModulesError> {
        let id = id.to_string();
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            let (record, checksum) = self.record(middle).ok_or(StoredModulesError::Checksum)?;
            let mut reader = Reader(record);
            match reader.text().ok_or(StoredModulesError::Checksum)?.cmp(id.as_str()) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal if crc32(&[record]) == checksum => {
                    return reader.facts().map(Some).ok_or(StoredModulesError::Checksum);
                }
                Ordering::Equal => return Err(StoredModulesError::Checksum),
            }
        }
        Ok(None)
    }

    /// Checks all of it.
    ///
    /// # Errors
    /// [`StoredModulesError::Checksum`].
    pub fn check(&self) -> Result<(), StoredModulesError> {
        if self.is_sound() { Ok(()) } else { Err(StoredModulesError::Checksum) }
    }

    fn digest_at(&self, at: usize) -> Digest {
        // The header is there.
        let bytes = self.bytes.get(at..at + DIGEST_BYTES).and_then(|bytes| bytes.try_into().ok());
        Digest::from_bytes(bytes.unwrap_or_default())
    }

    fn is_sound(&self) -> bool {
        let (Some(before), Some(checksum), Some(behind)) =
            (self.bytes.get(..CHECKSUM), self.bytes.get(CHECKSUM..CHECKSUM + 4), self.bytes.get(CHECKSUM + 4..))
        else {
            return false;
        };
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(before);
        hasher.update(&[0; 4]);
        hasher.update(behind);
        hasher.finalize().to_le_bytes() == checksum
    }

    /// A record and its checksum.
    fn record(&self, at: usize) -> Option<(&'a [u8], u32)> {
        let record = self.bytes.get(self.offset(at)?..self.offset(at + 1)?)?;
        Some((record, self.number(at, 4)?))
    }

    fn offset(&self, at: usize) -> Option<usize> {
        self.number(at, 0).map(|offset| offset as usize)
    }

    /// A number of a record's place.
    fn number(&self, at: usize, within: usize) -> Option<u32> {
        let place = HEADER_BYTES.checked_add(at.checked_mul(PLACE_BYTES)?)?.checked_add(within)?;
        let bytes = self.bytes.get(place..place.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// What is left of a record.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        std::str::from_utf8(self.take(length)?).ok()
    }

    fn digest(&mut self) -> Option<Digest> {
        self.array().map(Digest::from_bytes)
    }

    fn digests(&mut self) -> Option<Vec<Digest>> {
        let count = u32::from_le_bytes(self.array()?) as usize;
        // No more than there are bytes for.
        let bytes = self.take(count.checked_mul(DIGEST_BYTES)?)?;
        let (digests, _) = bytes.as_chunks::<DIGEST_BYTES>();
        Some(digests.iter().map(|digest| Digest::from_bytes(*digest)).collect())
    }

    fn facts(&mut self) -> Option<ModuleFacts> {
        let name = self.text()?.to_owned();
        let pdb = Some(self.text()?.to_owned()).filter(|pdb| !pdb.is_empty());
        let image_base = Svma(u64::from_le_bytes(self.array()?));
        let [debug_info, has_table] = self.array()?;
        let debug_info = *DEBUG_INFO.get(usize::from(debug_info))?;
        let table = match has_table {
            0 => None,
            _ => Some(TableFacts {
                sha256: self.digest()?,
                size: u64::from_le_bytes(self.array()?),
                derived_from: self.digests()?,
            }),
        };
        let digests = self.digests()?;
        Some(ModuleFacts { name, pdb, image_base, debug_info, table, digests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(modules: &[(&str, ModuleFacts)]) -> Vec<u8> {
        let records = modules.iter().map(|(id, facts)| (*id, record(id, facts).unwrap())).collect();
        assemble(records, &Digest::from_bytes([7; 32]), &Digest::from_bytes([7; 32])).unwrap()
    }

    fn facts(seed: u8) -> ModuleFacts {
        let digest = |number: u8| Digest::from_bytes([seed ^ number; 32]);
        ModuleFacts {
            name: format!("lib{seed}.so"),
            pdb: (seed % 2 == 1).then(|| format!("app{seed}.pdb")),
            image_base: Svma(u64::from(seed) << 40),
            debug_info: DEBUG_INFO[usize::from(seed % 4)],
            table: (!seed.is_multiple_of(3)).then(|| TableFacts {
                sha256: digest(1),
                size: u64::MAX - u64::from(seed),
                derived_from: (0..seed % 5).map(digest).collect(),
            }),
            digests: (0..seed % 7).map(digest).collect(),
        }
    }

    #[test]
    fn every_module_is_found_and_no_other() {
        for count in [0_u8, 1, 2, 3, 64, 255] {
            let ids: Vec<String> = (0..count).map(|seed| format!("{seed:02x}01")).collect();
            let modules: Vec<(&str, ModuleFacts)> = ids.iter().map(String::as_str).zip((0..count).map(facts)).collect();
            let bytes = bytes_of(&modules);
            let stored = StoredModules::open(&bytes).unwrap();
            assert_eq!((stored.len(), stored.bundle()), (usize::from(count), Digest::from_bytes([7; 32])));
            for (id, facts) in &modules {
                assert_eq!(stored.module(&id.parse().unwrap()).unwrap().as_ref(), Some(facts));
            }
            for absent in ["0002", "ff02", "7f01aa"] {
                assert_eq!(stored.module(&absent.parse().unwrap()), Ok(None));
            }
            assert_eq!(stored.check(), Ok(()));
        }
    }

    /// A list that was written by the document alone, in another language.
    #[test]
    fn a_list_of_another_writer_is_read() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/stored_modules/three-modules");
        let bytes = std::fs::read(path).unwrap();
        let stored = StoredModules::open(&bytes).unwrap();
        let digest = |number: u8| Digest::from_bytes([number; 32]);
        assert_eq!((stored.len(), stored.bundle(), stored.symbol_index()), (3, digest(0x11), digest(0x22)));
        let table = TableFacts { sha256: digest(4), size: 4096, derived_from: vec![digest(5)] };
        let expected = ModuleFacts {
            name: "app.exe".into(),
            pdb: Some("app.pdb".into()),
            image_base: Svma(0x1_4000_0000),
            debug_info: DebugInfo::LineTables,
            table: Some(table),
            digests: vec![digest(4), digest(5)],
        };
        assert_eq!(stored.module(&"bb00".parse().unwrap()), Ok(Some(expected)));
        assert_eq!(stored.module(&"ffff".parse().unwrap()).unwrap().unwrap().table, None);
        assert_eq!(stored.check(), Ok(()));
    }

    #[test]
    fn damage_is_noticed_and_never_gives_another_answer() {
        let modules = [("aa00", facts(1)), ("bb00", facts(5)), ("cc00", facts(10))];
        let bytes = bytes_of(&modules);
        let digest = Digest::from_bytes([7; 32]);
        for at in 0..bytes.len() {
            assert!(StoredModules::open(&bytes[..at]).is_err(), "cut at {at}");
            for bits in [0x01, 0x41, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= bits;
                let Ok(stored) = StoredModules::open(&damaged) else { continue };
                assert!(stored.check().is_err(), "byte {at}");
                assert_eq!((stored.bundle(), stored.symbol_index()), (digest, digest), "byte {at}");
                for (id, facts) in &modules {
                    // That there is none the caller checks before it believes it.
                    if let Ok(Some(found)) = stored.module(&id.parse().unwrap()) {
                        assert_eq!(found, *facts, "byte {at}");
                    }
                }
            }
        }
        assert!(StoredModules::open(&[&bytes[..], &[0]].concat()).is_err());
    }
}
