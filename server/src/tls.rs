//! The server's certificate, and its renewal without a restart.

use std::io::BufReader;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use symseal_bundle::open_plain_file;
use tokio_rustls::TlsAcceptor;

use crate::ServerError;
use crate::config::TlsConfig;

/// How often the files are looked at.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What connections are accepted with.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsConfig,
    current: RwLock<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    written: Written,
}

/// When both files were written last.
type Written = [Option<SystemTime>; 2];

impl Tls {
    /// Reads certificate and key.
    ///
    /// # Errors
    /// [`ServerError::Tls`] names the file.
    pub(crate) fn load(files: &TlsConfig) -> Result<Self, ServerError> {
        let written = written(files);
        let config = Arc::new(read(files)?);
        Ok(Self { files: files.clone(), current: RwLock::new(Current { config, written }) })
    }

    /// Accepts connections with the certificate of now.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).config))
    }

    /// Reads the files again if they were written since. What cannot be read changes nothing: a renewal may be under way.
    pub(crate) fn look_again(&self) {
        let written = written(&self.files);
        if self.current.read().unwrap_or_else(PoisonError::into_inner).written == written {
            return;
        }
        match read(&self.files) {
            Ok(config) => {
                let config = Arc::new(config);
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Current { config, written };
                tracing::info!(certificate = %self.files.certificate.display(), "the certificate was renewed");
            }
            Err(error) => tracing::warn!(%error, "the certificate that was there before is kept"),
        }
    }
}

fn written(files: &TlsConfig) -> Written {
    [&files.certificate, &files.key].map(|file| std::fs::metadata(file).and_then(|file| file.modified()).ok())
}

/// The certificates of a PEM file.
pub(crate) fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let file = open_plain_file(path).map_err(pem::Error::Io)?;
    CertificateDer::pem_reader_iter(BufReader::new(file)).collect()
}

fn read(files: &TlsConfig) -> Result<ServerConfig, ServerError> {
    let of_certificate =
        |problem: String| ServerError::Tls { setting: "tls.certificate", path: files.certificate.clone(), problem };
    let of_key = |problem: String| ServerError::Tls { setting: "tls.key", path: files.key.clone(), problem };
    let certificate = |problem: String| of_certificate(format!("{problem}: expected a chain of certificates in PEM"));
    let chain = read_chain(&files.certificate).map_err(|error| certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(certificate("it holds none".to_owned()));
    }
    let opened = open_plain_file(&files.key).map_err(pem::Error::Io);
    let key = opened
        .and_then(|file| PrivateKeyDer::from_pem_reader(BufReader::new(file)))
        .map_err(|error| of_key(format!("{error}: expected a private key in PEM (PKCS#8, SEC1 or PKCS#1)")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| of_certificate(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| match error {
            // The certificate's form, its version or its signature.
            rustls::Error::InvalidCertificate(_) => of_certificate(format!("{error}: expected one that clients take")),
            error => of_key(format!("{error}: expected the key of {}", files.certificate.display())),
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
