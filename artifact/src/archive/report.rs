//! What was seen in an archive beside the members that were visited.

use super::kind::ArchiveKind;

/// What [`read_archive`](super::read_archive) saw, all archives within the outermost one together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveReport {
    /// Regular files that were visited.
    pub files: u64,
    /// Archives that were opened, the outermost included, and packages' payloads and image layers not.
    pub archives: u64,
    /// Bytes that decompression gave.
    pub unpacked_bytes: u64,
    /// Symbolic links. They are not followed: what they name is visited where it lies, or is not in the archive.
    pub symbolic_links: u64,
    /// Hard links: further names of a file that was visited under the name that has its bytes.
    pub hard_links: u64,
    /// Those names, in the order of the archive, the first 64 MiB of their text; of images only those whose
    /// file is nowhere in the image, as a file is visited under a name that it has in the end.
    pub hard_link_names: Vec<HardLink>,
    /// The names of symbolic links in tars and what they lead to, be it there or not, the first ones within the same bound.
    pub symbolic_link_names: Vec<HardLink>,
    hard_link_bytes: usize,
    /// Devices, pipes and sockets.
    pub special_files: u64,
    /// Folders.
    pub folders: u64,
    /// `._name` and `__MACOSX/` files, which macOS adds and nobody else reads.
    pub apple_double: u64,
    /// Container images, one entry for each platform.
    pub images: Vec<ImageReport>,
    /// What was not looked into, the first [`MAX_PASSED_OVER`] of it.
    pub passed_over: Vec<PassedOver>,
    /// How much more was not looked into.
    pub passed_over_more: u64,
    /// How many of both are bombs.
    pub bombs: u32,
    /// How many of both are static libraries.
    pub static_libraries: u64,
}

/// How many bytes of text [`ArchiveReport::hard_link_names`] may have.
pub(super) const MAX_HARD_LINK_BYTES: usize = 64 << 20;

/// A further name of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardLink {
    /// The whole way to it: `release.zip!/tool.deb!/usr/bin/tool`.
    pub path: String,
    /// The whole way to the name that it stands for, which may be a hard link itself, or not be there.
    pub target: String,
}

/// How many entries [`ArchiveReport::passed_over`] may have.
pub const MAX_PASSED_OVER: usize = 10_000;

/// One image of a container image archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageReport {
    /// `linux/amd64`, `linux/arm64/v8`; empty where the image does not say.
    pub platform: String,
    /// Its tag or name, where the archive has one.
    pub name: String,
    /// The digests of its layers' blobs, lowest first.
    pub layers: Vec<String>,
    /// Regular files in the image when all layers lie upon one another.
    pub files: u64,
}

/// Something in an archive that was not looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// The whole way to it: `release.zip!/tool.deb!/usr/share/data.zip`.
    pub path: String,
    /// Why.
    pub reason: PassedOverReason,
}

/// Why something was not looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PassedOverReason {
    /// An archive within an archive within the archive.
    TooDeep(ArchiveKind),
    /// An archive within the archive is damaged; what came before the damage was visited.
    Damaged(String),
    /// Packed or encrypted in a way that is not read.
    Unsupported(String),
    /// An image, one of whose blobs is not there.
    Missing(String),
    /// A static library: its members are no modules.
    StaticLibrary,
    /// It gives more than [`Limits::ratio`](super::Limits::ratio) allows, and [`Limits::bombs`](super::Limits::bombs) that it be passed over.
    Bomb {
        /// The unpacked bytes for each packed one that are allowed.
        allowed: u64,
        /// Those that were found before it was left.
        found: u64,
    },
    /// A zip within a stream, larger than [`Limits::buffer_bytes`](super::Limits::buffer_bytes).
    TooLargeToHold {
        /// The bytes that may be held.
        allowed: u64,
    },
}

impl std::fmt::Display for PassedOverReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooDeep(kind) => write!(f, "{kind} within an archive within an archive"),
            Self::Damaged(reason) => write!(f, "damaged: {reason}"),
            Self::Unsupported(what) => write!(f, "not supported: {what}"),
            Self::Missing(blob) => write!(f, "blob {blob} is not there"),
            Self::StaticLibrary => f.write_str("a static library, whose members are no modules"),
            Self::Bomb { allowed, found } => {
                write!(
                    f,
                    "a bomb: at most {allowed} unpacked bytes for each packed byte are taken, found {found} or more"
                )
            }
            Self::TooLargeToHold { allowed } => {
                write!(f, "a zip within a stream, of more than {allowed} bytes")
            }
        }
    }
}

impl ArchiveReport {
    pub(super) fn hard_link(&mut self, path: String, target: String) {
        self.hard_links = self.hard_links.saturating_add(1);
        let bytes = self.hard_link_bytes.saturating_add(path.len()).saturating_add(target.len());
        if bytes <= MAX_HARD_LINK_BYTES {
            self.hard_link_bytes = bytes;
            self.hard_link_names.push(HardLink { path, target });
        }
    }

    pub(super) fn symbolic_link(&mut self, path: String, target: String) {
        self.symbolic_links = self.symbolic_links.saturating_add(1);
        let bytes = self.hard_link_bytes.saturating_add(path.len()).saturating_add(target.len());
        if bytes <= MAX_HARD_LINK_BYTES {
            self.hard_link_bytes = bytes;
            self.symbolic_link_names.push(HardLink { path, target });
        }
    }

    pub(super) fn pass_over(&mut self, path: String, reason: PassedOverReason) {
        if reason == PassedOverReason::StaticLibrary {
            self.static_libraries = self.static_libraries.saturating_add(1);
        }
        if matches!(reason, PassedOverReason::Bomb { .. }) {
            self.bombs = self.bombs.saturating_add(1);
        }
        if self.passed_over.len() < MAX_PASSED_OVER {
            self.passed_over.push(PassedOver { path, reason });
        } else {
            self.passed_over_more = self.passed_over_more.saturating_add(1);
        }
    }
}
