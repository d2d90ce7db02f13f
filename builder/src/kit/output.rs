//! Where a kit is written: a directory or a tar file that gets its name when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use symseal_bundle::Digest;

use super::KitError;

/// A file of the kit.
pub(super) struct Piece {
    /// Its path in the kit.
    pub(super) path: String,
    pub(super) from: From,
    pub(super) digest: Digest,
    /// In bytes.
    pub(super) size: u64,
    pub(super) is_program: bool,
}

/// Where a file's bytes are from.
pub(super) enum From {
    Bytes(Vec<u8>),
    File(PathBuf),
}

impl Piece {
    pub(super) fn bytes(path: &str, bytes: Vec<u8>) -> Self {
        let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
        Self { path: path.to_owned(), from: From::Bytes(bytes), digest, size, is_program: false }
    }

    /// Writes the bytes, which must be those of size and digest.
    fn copy(&self, into: &mut dyn Write, path: &Path) -> Result<(), KitError> {
        let (found, size) = match &self.from {
            From::Bytes(bytes) => {
                into.write_all(bytes).map_err(KitError::io("write", path))?;
                return Ok(());
            }
            From::File(from) => {
                let file = File::open(from).map_err(KitError::io("open", from))?;
                let mut tee = Tee { from: file.take(self.size.saturating_add(1)), into };
                Digest::of_reader(&mut tee).map_err(KitError::io("copy to the kit", from))?
            }
        };
        if (found, size) != (self.digest, self.size) {
            return Err(KitError::File {
                path: path.to_owned(),
                file: self.path.clone(),
                expected: format!("{} of {} bytes", self.digest, self.size),
                found: format!("{found} of {size} bytes"),
            });
        }
        Ok(())
    }
}

/// Reads, and writes what was read.
struct Tee<'w, R> {
    from: R,
    into: &'w mut dyn Write,
}

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.into.write_all(buffer.get(..read).unwrap_or_default())?;
        Ok(read)
    }
}

/// Whether a name means a tar file.
pub(super) fn is_tar(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tar"))
}

/// Writes the pieces as a kit at `path`, in their order. After an error nothing of it is left.
pub(super) fn write(path: &Path, pieces: &[Piece], wrote: &dyn Fn(u64)) -> Result<(), KitError> {
    if fs::symlink_metadata(path).is_ok() {
        return Err(KitError::Exists { path: path.to_owned() });
    }
    let unfinished = Unfinished::beside(path)?;
    if is_tar(path) {
        let file = create(&unfinished.0)?;
        let mut tar = tar::Builder::new(BufWriter::new(file));
        for piece in pieces {
            append(&mut tar, piece, &unfinished.0)?;
            wrote(piece.size);
        }
        let file = tar.into_inner().and_then(|buffered| Ok(buffered.into_inner()?));
        let file = file.map_err(KitError::io("write", &unfinished.0))?;
        file.sync_all().map_err(KitError::io("sync", &unfinished.0))?;
    } else {
        fs::create_dir(&unfinished.0).map_err(KitError::io("create the directory", &unfinished.0))?;
        for piece in pieces {
            let target = unfinished.0.join(&piece.path);
            if let Some(folder) = target.parent() {
                fs::create_dir_all(folder).map_err(KitError::io("create the directory", folder))?;
            }
            let mut file = create(&target)?;
            piece.copy(&mut file, &target)?;
            make_executable(&file, piece.is_program).map_err(KitError::io("make executable", &target))?;
            file.sync_all().map_err(KitError::io("sync", &target))?;
            wrote(piece.size);
        }
    }
    fs::rename(&unfinished.0, path).map_err(KitError::io("rename the finished kit to", path))?;
    Ok(())
}

fn create(path: &Path) -> Result<File, KitError> {
    OpenOptions::new().write(true).create_new(true).open(path).map_err(KitError::io("create", path))
}

#[cfg(unix)]
fn make_executable(file: &File, is_program: bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if is_program { file.set_permissions(fs::Permissions::from_mode(0o755)) } else { Ok(()) }
}

#[cfg(not(unix))]
fn make_executable(_: &File, _: bool) -> io::Result<()> {
    Ok(())
}

/// No time, owner or name of this machine enters the archive.
fn append(tar: &mut tar::Builder<BufWriter<File>>, piece: &Piece, path: &Path) -> Result<(), KitError> {
    let failed = KitError::io("write", path);
    let mut header = tar::Header::new_ustar();
    if let Err(error) = header.set_path(&piece.path) {
        return Err(failed(error));
    }
    header.set_size(piece.size);
    header.set_mode(if piece.is_program { 0o755 } else { 0o644 });
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    let out = tar.get_mut();
    out.write_all(header.as_bytes()).map_err(failed)?;
    piece.copy(out, path)?;
    const BLOCK: u64 = 512;
    let padding = (BLOCK - piece.size % BLOCK) % BLOCK;
    io::copy(&mut io::repeat(0).take(padding), out).map(drop).map_err(KitError::io("write", path))
}

/// A name beside the final one; what is left under it goes when it was not renamed.
struct Unfinished(PathBuf);

impl Unfinished {
    fn beside(path: &Path) -> Result<Self, KitError> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(KitError::io("create the directory", parent))?;
        Ok(Self(parent.join(format!(".{name}.{}.part", std::process::id()))))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Only untidy where it cannot be removed.
        let _ = if self.0.is_dir() { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
    }
}
