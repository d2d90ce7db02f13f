//! What precedes a header to say more than it can: GNU long names and pax records.

use tar::PaxExtensions;

/// Bytes of one pax record block. Extended attributes of a file make up to 64 KiB each; a sparse map of form 0.1 is larger.
pub(super) const MAX_PAX_BYTES: u64 = 1 << 20;

/// What the extension headers said about the next entry.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) sparse: SparseRecords,
}

/// The `GNU.sparse.*` records (GNU tar manual, "Storing Sparse Files").
#[derive(Debug, Default)]
pub(super) struct SparseRecords {
    /// The form, of which only major version 1 states itself.
    pub(super) major: Option<u64>,
    /// The file's name, as the header's is made up (forms 0.1 and 1.0).
    pub(super) name: Option<Vec<u8>>,
    /// The file's size with its holes.
    pub(super) real_size: Option<u64>,
    /// Offsets and sizes of forms 0.0 and 0.1, in the order given.
    pub(super) map: Vec<(u64, u64)>,
    /// An offset that waits for its size (form 0.0).
    offset: Option<u64>,
    /// Whether there was any such record.
    pub(super) is_sparse: bool,
}

/// Why a pax record is no good, for an error: what was found.
pub(super) type Found = String;

impl Extensions {
    /// Takes over the records of a pax header of type `x`.
    pub(super) fn add_pax(&mut self, block: &[u8]) -> Result<(), Found> {
        for record in PaxExtensions::new(block) {
            let record = record.map_err(|error| error.to_string())?;
            let value = record.value_bytes();
            match record.key_bytes() {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(decimal(value)?),
                key if key.starts_with(b"GNU.sparse.") => self.sparse.add(key, value)?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl SparseRecords {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), Found> {
        self.is_sparse = true;
        match key {
            b"GNU.sparse.major" => self.major = Some(decimal(value)?),
            b"GNU.sparse.name" => self.name = Some(value.to_vec()),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.real_size = Some(decimal(value)?),
            b"GNU.sparse.offset" => self.offset = Some(decimal(value)?),
            b"GNU.sparse.numbytes" => {
                let offset = self.offset.take().ok_or("a size of a sparse part without its offset")?;
                self.map.push((offset, decimal(value)?));
            }
            b"GNU.sparse.map" => {
                let mut numbers = value.split(|byte| *byte == b',').filter(|text| !text.is_empty());
                while let Some(offset) = numbers.next() {
                    let size = numbers.next().ok_or("a sparse map that ends within a pair")?;
                    self.map.push((decimal(offset)?, decimal(size)?));
                }
            }
            // minor, numblocks: nothing that the rest does not say.
            _ => {}
        }
        Ok(())
    }
}

/// A number in decimal digits.
pub(super) fn decimal(text: &[u8]) -> Result<u64, Found> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("{:?} for a number", crate::escaped(text.get(..32).unwrap_or(text))))
}
