//! What callers are told where the server is in trouble: what is the matter, and not where it keeps what. The log has that, under the id that
//! the answer has in `X-Request-Id`.

use std::io;

use crate::blobs::is_shortage;
use crate::objects::{Failure, Why};
use crate::store::StoreError;

/// Of a disk or an object store.
pub(crate) fn told_of_storage(error: &io::Error) -> &'static str {
    tracing::error!(%error, "a request was not served");
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the server's disk is full, nothing was stored: free space or use another server"
        }
        io::ErrorKind::FileTooLarge => {
            "the server may write no file of that size, nothing was stored: its operator has to raise the bound (ulimit -f)"
        }
        _ if Failure::why(error) == Some(Why::CredentialsRefused) => {
            "the server's store refuses the server's credentials: the server's operator has to look at them"
        }
        _ if Failure::why(error) == Some(Why::NoBucket) => {
            "the server's store has no such bucket: the server's operator has to make it, or to name another"
        }
        _ if Failure::why(error) == Some(Why::OneObject) => {
            "the server's store does not give this one object: the server's operator has to look at it, the log says at which"
        }
        io::ErrorKind::HostUnreachable if is_of_database(error) => {
            "the server's database does not answer: try again soon"
        }
        io::ErrorKind::HostUnreachable => "the server's store does not answer: try again soon",
        _ if is_shortage(error) => {
            "the server has no more open files, memory or threads for this at the moment: try again soon"
        }
        _ => "the server's store failed: its log says why, under the X-Request-Id of this answer",
    }
}

/// Whether what storage says is the database's: servers that share an object store tell each other through it what they change there.
pub(crate) fn is_of_database(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|why| why.is::<StoreError>())
}

/// Of a database.
pub(crate) fn told_of_database(error: &StoreError) -> &'static str {
    tracing::error!(%error, "a request was not served");
    match error {
        StoreError::Full(_) => "the server's database has no room left: free space or use another server",
        StoreError::Away(_) => "the server's database does not answer, nothing was recorded: try again soon",
        StoreError::Failed(_) => {
            "the server's database failed: its log says why, under the X-Request-Id of this answer"
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;
    use crate::endpoints::api::ApiError;
    use crate::endpoints::oci::OciError;

    #[test]
    fn what_storage_says_of_the_database_is_told_as_the_databases() {
        let away = || io::Error::new(io::ErrorKind::HostUnreachable, StoreError::Away("no route".to_owned()));
        let told = format!("{:?}", ApiError::from(away()));
        assert!(told.contains("database-away"), "{told}");
        assert!(told_of_storage(&away()).contains("the server's database"));
        let told = format!("{:?}", ApiError::from(io::Error::from(io::ErrorKind::HostUnreachable)));
        assert!(told.contains("storage-away"), "{told}");
    }

    #[tokio::test]
    async fn who_meets_a_server_that_has_no_descriptor_left_is_told_to_come_again() {
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN] {
            let error = || io::Error::from_raw_os_error(code);
            let asked = crate::log::ReadError::Io(error());
            let answers = [
                OciError::from(error()).into_response(),
                OciError::from(crate::blobs::UploadError::Io(error())).into_response(),
                OciError::from(crate::publish::PublishError::Io(error())).into_response(),
                ApiError::from(error()).into_response(),
                ApiError::from(io::Error::other(error())).into_response(),
                crate::endpoints::log::LogApiError::from(asked).into_response(),
            ];
            for answer in answers {
                assert_eq!(answer.status(), axum::http::StatusCode::SERVICE_UNAVAILABLE, "{code}: {answer:?}");
                assert!(answer.headers().contains_key("retry-after"), "{code}: {answer:?}");
            }
        }
    }

    #[tokio::test]
    async fn nobody_is_told_where_the_server_keeps_what() {
        let place = "/var/lib/secret";
        let kinds = [
            io::ErrorKind::StorageFull,
            io::ErrorKind::HostUnreachable,
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::Other,
        ];
        let disk = || kinds.into_iter().map(|kind| io::Error::new(kind, format!("{place}/blobs: in trouble")));
        let database = || [StoreError::Full, StoreError::Away, StoreError::Failed].map(|kind| kind(place.to_owned()));
        let answers = disk().map(|error| OciError::from(error).into_response());
        let answers = answers.chain(disk().map(|error| ApiError::from(error).into_response()));
        let answers = answers.chain(database().map(|error| ApiError::from(error).into_response()));
        let publish = crate::publish::PublishError::Store;
        for answer in answers.chain(database().map(|error| OciError::from(publish(error)).into_response())) {
            assert!(answer.status().is_server_error());
            let body = axum::body::to_bytes(answer.into_body(), 1 << 16).await.unwrap();
            let body = String::from_utf8(body.to_vec()).unwrap();
            assert!(!body.contains(place) && body.contains("the server's"), "{body}");
        }
    }
}
