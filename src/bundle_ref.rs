//! BUNDLE on the command line: a digest in the local store, a directory, or a registry reference.

mod pulled;

use std::path::{Path, PathBuf};

pub use pulled::pull;

use anyhow::{Context, Result, bail};
use symseal_bundle::{Bundle, Digest, LayoutDir};
use symseal_module::Proof;
use symseal_registry::Reference;
use symseal_resolver::{Access, Resolver, StoredBundle};

use crate::exit::NotFound;
use crate::output::visible_lines;
use crate::places::store_dir;

/// A bundle that was named on the command line.
#[derive(Debug)]
pub struct OpenedBundle {
    /// The bundle, its index checked against its digest.
    pub bundle: Bundle,
    /// Whether its files may be mapped: only where they lie in our own store.
    pub access: Access,
}

/// A bundle for names alone.
pub enum NamingBundle {
    /// In the local store: opened by the list of its modules.
    Stored(StoredBundle),
    /// Anywhere else.
    Foreign(Box<Bundle>),
    /// Wherever it is, with its digests checked in this run, and what was found of its seal.
    Hashed(Box<Bundle>, Access, Proof),
}

impl NamingBundle {
    /// Opens what `reference` names, as [`open`] does, for names without a verified seal.
    pub fn open(reference: &str, store: Option<&PathBuf>) -> Result<Self> {
        match locate(reference, store)? {
            Located::Directory(path) => Ok(Self::Foreign(Box::new(foreign(reference, path)?))),
            Located::Stored(store, digest) => {
                let layout = stored_layout(&store, &digest)?;
                let bundle = StoredBundle::open(layout, &digest).with_context(|| in_store(&digest, &store))?;
                Ok(Self::Stored(bundle))
            }
        }
    }

    /// The same where it is to be said what a name rests on: tables are hashed when they are opened.
    pub fn hashed(OpenedBundle { bundle, access }: OpenedBundle, proof: Proof) -> Self {
        Self::Hashed(Box::new(bundle), access, proof)
    }

    /// The resolver with the bundle.
    pub fn join(self, resolver: Resolver) -> Resolver {
        match self {
            Self::Stored(bundle) => resolver.with_store(bundle, Proof::DigestKnown),
            Self::Foreign(bundle) => resolver.with_bundle(*bundle, Proof::DigestKnown),
            Self::Hashed(bundle, access, proof) => resolver.with_bundle_access(*bundle, proof, access),
        }
    }
}

/// Where a bundle is.
enum Located<'r> {
    Directory(&'r Path),
    /// In this store, by its digest.
    Stored(PathBuf, Digest),
}

/// Opens what `reference` names:
///
/// * `sha256:…`: that bundle in the local store (`store`, or the default one);
/// * a directory with an OCI layout, or what `oras pull` left;
/// * `host[:port]/repository[:tag|@digest]`: pulled into the local store first.
pub fn open(reference: &str, store: Option<&PathBuf>) -> Result<OpenedBundle> {
    match locate(reference, store)? {
        Located::Directory(path) => Ok(OpenedBundle { bundle: foreign(reference, path)?, access: Access::Foreign }),
        Located::Stored(store, digest) => {
            let layout = stored_layout(&store, &digest)?;
            let bundle = Bundle::open(layout, Some(&digest)).with_context(|| in_store(&digest, &store))?;
            Ok(OpenedBundle { bundle, access: Access::OwnStore })
        }
    }
}

/// The same with its sources, where it has some and they are to be had where it came from; what keeps them away is told.
pub fn open_with_sources(reference: &str, store: Option<&PathBuf>) -> Result<OpenedBundle> {
    let opened = open(reference, store)?;
    let (Some(sources), Ok(parsed)) = (opened.bundle.index().sources, Reference::parse(reference)) else {
        return Ok(opened);
    };
    if Path::new(reference).exists() || reference.starts_with("sha256:") {
        return Ok(opened);
    }
    let Some(digest) = opened.bundle.digest() else { return Ok(opened) };
    let digest = digest.to_string();
    match pull(&parsed.with_digest(sources).to_string(), &store_dir(store)?) {
        Ok(_) => open(&digest, store),
        Err(error) => {
            eprintln!("note: the bundle's sources: {}", visible_lines(&format!("{error:#}")));
            Ok(opened)
        }
    }
}

/// Finds what `reference` names; what is in a registry is pulled.
fn locate<'r>(reference: &'r str, store: Option<&PathBuf>) -> Result<Located<'r>> {
    if reference.starts_with("sha256:") {
        let digest: Digest = reference.parse().with_context(|| format!("bundle {reference}"))?;
        return Ok(Located::Stored(store_dir(store)?, digest));
    }
    let path = Path::new(reference);
    if path.exists() {
        return Ok(Located::Directory(path));
    }
    if !looks_like_a_registry_reference(reference) {
        bail!(
            "bundle {reference}: no such directory; expected sha256:…, a directory with an OCI layout, or host/repository:tag"
        );
    }
    let store = store_dir(store)?;
    let digest = pull(reference, &store)?;
    Ok(Located::Stored(store, digest))
}

/// Runs a future of the registry client to its end.
pub fn block_on<F: Future>(future: F) -> Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("no asynchronous runtime could be started")?;
    Ok(runtime.block_on(future))
}

fn in_store(digest: &Digest, store: &Path) -> String {
    format!("bundle {digest} in the local store {}", store.display())
}

/// The store, which must have the bundle.
fn stored_layout(store: &Path, digest: &Digest) -> Result<LayoutDir> {
    if !LayoutDir::open(store).is_ok_and(|layout| layout.has(digest)) && !store.is_file() {
        let absent = format!("{}: not there; `symseal bundle pull` brings it", in_store(digest, store));
        return Err(NotFound(absent).into());
    }
    LayoutDir::open(store).with_context(|| in_store(digest, store))
}

fn foreign(reference: &str, path: &Path) -> Result<Bundle> {
    open_directory(path).with_context(|| format!("bundle {reference}"))
}

fn open_directory(path: &Path) -> Result<Bundle> {
    if !path.is_dir() {
        bail!("expected a directory with an OCI layout, found a file");
    }
    if path.join("oci-layout").exists() {
        return Ok(Bundle::open(LayoutDir::open(path)?, None)?);
    }
    if path.join("symbol_index.json").exists() {
        return Ok(Bundle::open_pulled(path)?);
    }
    bail!("expected an OCI layout (a file oci-layout) or what `oras pull` left (symbol_index.json), found neither")
}

/// A host with a dot, a port or the name localhost before the first slash, as other OCI clients ask.
fn looks_like_a_registry_reference(text: &str) -> bool {
    text.split_once('/').is_some_and(|(host, _)| {
        !host.is_empty()
            && (host == "localhost" || host.contains(':') || (host.contains('.') && !host.starts_with('.')))
    })
}

#[cfg(test)]
mod tests {
    use super::looks_like_a_registry_reference;

    #[test]
    fn a_registry_has_a_host_and_a_path_has_none() {
        for reference in ["127.0.0.1:5000/a/b:c", "localhost/a", "registry.example/a@sha256:00"] {
            assert!(looks_like_a_registry_reference(reference), "{reference}");
        }
        for path in ["bundle", "./bundle", "../a/b", "/abs/path", "dir/bundle"] {
            assert!(!looks_like_a_registry_reference(path), "{path}");
        }
    }
}
