//! The error answers of the OCI distribution API.

use std::io;

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::access::CallerError;
use crate::blobs::{NotGiven, ParseDigestError, UploadError, is_shortage};
use crate::endpoints::{RETRY_AFTER, told_of_database, told_of_storage};
use crate::http::{NoRoom, NotGathered};
use crate::pool::JobLost;
use crate::quotas::{Full, OverQuota};
use crate::store::StoreError;
use crate::takedown::IsTakenDown;

/// The specification's error codes, and those that it leaves to the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    BlobUnknown,
    BlobUploadInvalid,
    BlobUploadOutOfOrder,
    BlobUploadUnknown,
    BodyTooSlow,
    Conflict,
    Denied,
    DeniedToCaller,
    DigestInvalid,
    InsufficientStorage,
    ManifestBlobUnknown,
    ManifestEncoded,
    ManifestInvalid,
    ManifestUnknown,
    NameInvalid,
    NameUnknown,
    OverQuota,
    PaginationNumberInvalid,
    PreconditionFailed,
    SizeInvalid,
    TagInvalid,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unknown,
    Unsupported,
}

impl Code {
    fn status_and_text(self) -> (StatusCode, &'static str) {
        match self {
            Self::BlobUnknown => (StatusCode::NOT_FOUND, "BLOB_UNKNOWN"),
            Self::BlobUploadInvalid => (StatusCode::BAD_REQUEST, "BLOB_UPLOAD_INVALID"),
            Self::BlobUploadOutOfOrder => (StatusCode::RANGE_NOT_SATISFIABLE, "BLOB_UPLOAD_INVALID"),
            Self::BlobUploadUnknown => (StatusCode::NOT_FOUND, "BLOB_UPLOAD_UNKNOWN"),
            // The specification has no code for it.
            Self::BodyTooSlow => (StatusCode::REQUEST_TIMEOUT, "DENIED"),
            Self::Conflict => (StatusCode::CONFLICT, "DENIED"),
            Self::Denied => (StatusCode::METHOD_NOT_ALLOWED, "DENIED"),
            Self::DeniedToCaller => (StatusCode::FORBIDDEN, "DENIED"),
            Self::DigestInvalid => (StatusCode::BAD_REQUEST, "DIGEST_INVALID"),
            Self::InsufficientStorage => (StatusCode::INSUFFICIENT_STORAGE, "INSUFFICIENT_STORAGE"),
            Self::ManifestBlobUnknown => (StatusCode::NOT_FOUND, "MANIFEST_BLOB_UNKNOWN"),
            Self::ManifestEncoded => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "MANIFEST_INVALID"),
            Self::ManifestInvalid => (StatusCode::BAD_REQUEST, "MANIFEST_INVALID"),
            Self::ManifestUnknown => (StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN"),
            Self::NameInvalid => (StatusCode::BAD_REQUEST, "NAME_INVALID"),
            Self::NameUnknown => (StatusCode::NOT_FOUND, "NAME_UNKNOWN"),
            // The specification has DENIED for what is refused whoever asks for it; clients do not try 413 again.
            Self::OverQuota => (StatusCode::PAYLOAD_TOO_LARGE, "DENIED"),
            Self::PaginationNumberInvalid => (StatusCode::BAD_REQUEST, "PAGINATION_NUMBER_INVALID"),
            // Nor for it.
            Self::PreconditionFailed => (StatusCode::PRECONDITION_FAILED, "DENIED"),
            Self::SizeInvalid => (StatusCode::BAD_REQUEST, "SIZE_INVALID"),
            Self::TagInvalid => (StatusCode::BAD_REQUEST, "TAG_INVALID"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "SIZE_INVALID"),
            Self::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "TOOMANYREQUESTS"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "UNAUTHORIZED"),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE"),
            Self::Unknown => (StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN"),
            Self::Unsupported => (StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED"),
        }
    }
}

/// An error answer: `{"errors":[{"code","message"}]}`.
#[derive(Debug)]
pub(crate) struct OciError {
    code: Code,
    message: String,
    /// Boxed: few errors have any, and every result carries the room for one.
    headers: Option<Box<HeaderMap>>,
}

impl OciError {
    /// An error with a message that names the object, what was expected and what was found.
    pub(crate) fn new(code: Code, message: impl ToString) -> Self {
        Self { code, message: message.to_string(), headers: None }
    }

    /// Something that the server stands on does not answer now.
    pub(crate) fn away(message: impl ToString) -> Self {
        let retry = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER))]);
        Self::new(Code::Unavailable, message).with_headers(retry)
    }

    /// Adds headers to the answer.
    pub(crate) fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers.get_or_insert_default().extend(headers);
        self
    }
}

impl OciError {
    /// Whether there is no room for what came.
    pub(super) fn is_full(&self) -> bool {
        matches!(self.code, Code::InsufficientStorage)
    }

    /// Whether what came is not wanted, whatever comes next: it is more than the quota or than one upload may have, or the token holds no longer.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.code, Code::OverQuota | Code::TooLarge | Code::Unauthorized)
    }

    /// Whether an upload whose last request is answered so has ended: what came is not wanted, or is wrong for good.
    pub(super) fn ends_upload(&self) -> bool {
        self.is_refusal() || matches!(self.code, Code::DigestInvalid)
    }
}

impl IntoResponse for OciError {
    fn into_response(self) -> Response {
        let (status, code) = self.code.status_and_text();
        if status.is_server_error() {
            tracing::error!(code, message = self.message);
        }
        let body = Json(json!({ "errors": [{ "code": code, "message": self.message }] }));
        (status, self.headers.map(|headers| *headers).unwrap_or_default(), body).into_response()
    }
}

impl From<io::Error> for OciError {
    fn from(error: io::Error) -> Self {
        if NotGiven::is_why(&error) {
            return Self::new(Code::BlobUnknown, error);
        }
        let told = told_of_storage(&error);
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::new(Code::InsufficientStorage, told)
            }
            io::ErrorKind::HostUnreachable => Self::away(told),
            _ if is_shortage(&error) => Self::away(told),
            _ => Self::new(Code::Unknown, told),
        }
    }
}

impl From<StoreError> for OciError {
    fn from(error: StoreError) -> Self {
        let told = told_of_database(&error);
        match error {
            StoreError::Full(_) => Self::new(Code::InsufficientStorage, told),
            StoreError::Away(_) => Self::away(told),
            StoreError::Failed(_) => Self::new(Code::Unknown, told),
        }
    }
}

impl From<CallerError> for OciError {
    fn from(error: CallerError) -> Self {
        match error {
            CallerError::Refused | CallerError::Expired => {
                let basic = (header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"symseal\""));
                Self::new(Code::Unauthorized, error).with_headers(HeaderMap::from_iter([basic]))
            }
            CallerError::Store(error) => error.into(),
            CallerError::Issuer(_) => Self::away(error),
        }
    }
}

impl From<NoRoom> for OciError {
    fn from(error: NoRoom) -> Self {
        Self::away(error)
    }
}

impl From<NotGathered> for OciError {
    fn from(error: NotGathered) -> Self {
        match error {
            NotGathered::TooLarge => Self::new(Code::TooLarge, error),
            NotGathered::Stalled => Self::new(Code::BodyTooSlow, error),
            NotGathered::Broken(_) => Self::new(Code::ManifestInvalid, error),
            NotGathered::NoRoom(full) => full.into(),
        }
    }
}

impl From<JobLost> for OciError {
    fn from(error: JobLost) -> Self {
        Self::new(Code::Unknown, error)
    }
}

impl From<Full> for OciError {
    fn from(error: Full) -> Self {
        match error {
            Full::TooLarge(error) => Self::new(Code::TooLarge, error),
            Full::Quota(error) => error.into(),
        }
    }
}

impl From<OverQuota> for OciError {
    fn from(error: OverQuota) -> Self {
        match error {
            OverQuota::Bytes { .. } => Self::new(Code::OverQuota, error),
            OverQuota::Bundles { .. } => Self::new(Code::DeniedToCaller, error),
        }
    }
}

impl From<IsTakenDown> for OciError {
    fn from(error: IsTakenDown) -> Self {
        Self::new(Code::DeniedToCaller, error)
    }
}

impl From<ParseDigestError> for OciError {
    fn from(error: ParseDigestError) -> Self {
        Self::new(Code::DigestInvalid, error)
    }
}

impl From<UploadError> for OciError {
    fn from(error: UploadError) -> Self {
        match error {
            UploadError::OutOfOrder { .. } => Self::new(Code::BlobUploadOutOfOrder, error),
            UploadError::TakenOver => Self::new(Code::BlobUploadUnknown, error),
            UploadError::Digest { .. } => Self::new(Code::DigestInvalid, error),
            UploadError::Io(error) => error.into(),
        }
    }
}
