//! One file of an archive, and how its path is told.

use super::kind::ArchiveKind;
use super::reach::Reach;
use crate::escaped;

/// One regular file, as [`read_archive`](super::read_archive) visits it.
///
/// Paths are for reports and for pairing by name. Nothing is ever written at a member's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<'m> {
    /// Names of the archives around it, outermost first: the archive's own name, then the paths within. For an image
    /// `linux/amd64` and the layer's digest follow the name. Empty for a compressed file that is no archive.
    pub outer: &'m [String],
    /// Its path within the innermost archive: `/` between the parts, without a leading one, `.` and `..` resolved (never
    /// above the archive's root), then [`escaped`].
    pub path: &'m str,
    /// Its path as the archive has it.
    pub raw_path: &'m [u8],
    /// Its size in bytes where the archive says it; unknown for a file that was compressed by itself.
    pub size_hint: Option<u64>,
    /// How the file was compressed by itself (`.ko.xz`, `.debug.gz`), the outermost first where it was compressed again; what is read is
    /// unpacked.
    pub compressions: &'m [ArchiveKind],
    /// How many archives within the outermost one lie around it.
    pub depth: u32,
    /// How it is reached in the outermost archive without reading what lies before it; unknown for what lies in an archive within, was compressed by itself, or has
    /// holes.
    pub reach: Option<Reach>,
    /// What the archive has as the signature of the file's own bytes, in hex: an RPM package's for the kernel's integrity measurement (IMA). It is the
    /// archive's word: nothing is verified.
    pub signature: Option<&'m str>,
}

impl Member<'_> {
    /// The last part of the path, without each `.gz`, `.xz`, `.zst` or `.bz2` that the file was unpacked from.
    pub fn file_name(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(self.path);
        self.compressions.iter().fold(name, |name, kind| {
            let inner = kind.suffix().and_then(|suffix| name.strip_suffix(suffix));
            inner.filter(|name| !name.is_empty()).unwrap_or(name)
        })
    }

    /// The whole way to the member: `release.zip!/tool.deb!/usr/bin/tool`.
    pub fn full_path(&self) -> String {
        joined(self.outer, self.path)
    }
}

/// Archives and a path joined by `!/`.
pub(super) fn joined(outer: &[String], path: &str) -> String {
    let mut parts: Vec<&str> = outer.iter().map(String::as_str).collect();
    if !path.is_empty() {
        parts.push(path);
    }
    parts.join("!/")
}

/// Where a file lies, while it is read.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub(super) outer: Vec<String>,
    pub(super) path: String,
    pub(super) raw_path: Vec<u8>,
    pub(super) size: Option<u64>,
    /// What it was unpacked from by itself, the outermost first.
    pub(super) compressions: Vec<ArchiveKind>,
    /// Archives around it.
    pub(super) depth: u32,
    /// How its bytes are reached as they lie there.
    pub(super) reach: Option<Reach>,
    /// The signature of its bytes.
    pub(super) signature: Option<String>,
}

impl Place {
    /// The outermost file, whose name the caller made fit to be told.
    pub(super) fn outermost(name: &str) -> Self {
        Self { path: name.to_owned(), raw_path: name.as_bytes().to_vec(), ..Self::default() }
    }

    /// What errors call it.
    pub(super) fn label(&self) -> String {
        joined(&self.outer, &self.path)
    }

    /// This file seen as an archive around others.
    pub(super) fn as_outer(&self) -> Inside {
        let mut outer = self.outer.clone();
        outer.push(self.path.clone());
        Inside { label: self.label(), outer, depth: self.depth.saturating_add(1) }
    }

    /// The same file, unpacked.
    pub(super) fn unpacked(&self, kind: ArchiveKind) -> Self {
        let mut inner = Self { size: None, reach: None, signature: None, ..self.clone() };
        inner.compressions.push(kind);
        inner
    }
}

/// The inside of an archive.
#[derive(Debug, Clone)]
pub(super) struct Inside {
    pub(super) label: String,
    pub(super) outer: Vec<String>,
    pub(super) depth: u32,
}

impl Inside {
    /// Whether this is the outermost archive.
    pub(super) fn is_outermost(&self) -> bool {
        self.outer.len() == 1
    }

    pub(super) fn place(&self, raw_path: Vec<u8>, size: Option<u64>) -> Place {
        Place {
            outer: self.outer.clone(),
            path: reported(&raw_path),
            raw_path,
            size,
            compressions: Vec::new(),
            depth: self.depth,
            reach: None,
            signature: None,
        }
    }
}

/// A path's parts with `.` and `..` resolved, joined by `/`. `..` at the root is dropped.
pub(super) fn normalised(raw: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in raw.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

/// How a path is told.
pub(super) fn reported(raw: &[u8]) -> String {
    escaped(&normalised(raw)).into_owned()
}

/// Whether a path is one of the files that macOS adds for a file's attributes: `._name` (AppleDouble) and everything
/// below `__MACOSX`. They begin like no release file, and a `._tool.dylib` beside `tool.dylib` only confuses.
pub(super) fn is_apple_double(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    let is_resource = parts.next_back().is_some_and(|name| name.starts_with(b"._"));
    is_resource || path.split(|byte| *byte == b'/').any(|part| part == b"__MACOSX")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_without_their_dots_and_never_above_the_root() {
        for (raw, expected) in [
            (&b"./usr/lib/x"[..], "usr/lib/x"),
            (b"/etc/passwd", "etc/passwd"),
            (b"../../etc/passwd", "etc/passwd"),
            (b"a/../../b//c/.", "b/c"),
            (b"a\n\xff", "a\\x0a\\xff"),
            (b"", ""),
        ] {
            assert_eq!(reported(raw), expected);
        }
    }

    #[test]
    fn a_file_that_was_compressed_by_itself_goes_by_its_inner_name() {
        let mut member = Member {
            outer: &["a.deb".to_owned()],
            path: "lib/modules/x.ko.xz",
            raw_path: b"",
            size_hint: None,
            compressions: &[ArchiveKind::Xz],
            depth: 1,
            reach: None,
            signature: None,
        };
        assert_eq!((member.file_name(), member.full_path()), ("x.ko", "a.deb!/lib/modules/x.ko.xz".to_owned()));
        member.compressions = &[];
        assert_eq!(member.file_name(), "x.ko.xz");
        member.path = "base.gz.xz.gz";
        for (compressions, name) in [
            (&[ArchiveKind::Gzip][..], "base.gz.xz"),
            (&[ArchiveKind::Gzip, ArchiveKind::Xz], "base.gz"),
            (&[ArchiveKind::Xz, ArchiveKind::Gzip], "base.gz.xz"),
        ] {
            member.compressions = compressions;
            assert_eq!(member.file_name(), name);
        }
    }

    #[test]
    fn files_that_only_macos_reads_are_known() {
        for path in [&b"a/._b"[..], b"._b", b"__MACOSX/a/b", b"x/__MACOSX/b"] {
            assert!(is_apple_double(path), "{}", escaped(path));
        }
        assert!(!is_apple_double(b"a/_b") && !is_apple_double(b"MACOSX/b"));
    }
}
