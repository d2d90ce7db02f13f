//! The content-addressed directory: bytes named by their digest, visible only when whole, synced and checked.

mod digest;
mod directory;
mod lasting;
mod mapped;
mod pins;
mod remote;
mod shortage;
mod spool;
mod upload;

pub(crate) use digest::{Algorithm, BlobDigest, Hasher, ParseDigestError};
pub(crate) use directory::{
    BlobDirectory, BlobNames, NotGiven, OpenBlob, check_size, map_own, mark, sweep_unfinished, sync_directory,
    write_file_atomically,
};
pub(crate) use lasting::{is_lasting, unless_lost};
pub(crate) use mapped::{MappedBlob, mapped_blob_of};
pub(crate) use pins::{Pin, Watch};
pub(crate) use remote::{blob_key, blob_of_key};
pub(crate) use shortage::{is_shortage, kind_of};
pub(crate) use spool::Spool;
pub(crate) use upload::{ABANDONED_AFTER, Upload, UploadError, Uploads, Writer, hash_file};
