//! The object store: whether it answers, takes the server's credentials, and has what a server left there.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::upstreams::{Asked, ask};
use super::{Finding, clocks};
use crate::clock::between;
use crate::config::{BlobsConfig, Config};
use crate::objects::MARK;
use crate::objects::{Failure, Objects, Why, certificates, read_certificates};
use crate::opened::objects_of;

/// An HTTP date has whole seconds (RFC 9110, 5.6.7).
const HTTP_DATE: Duration = Duration::from_secs(1);

pub(super) async fn look(config: &Config) -> Vec<Finding> {
    let Some(blobs) = &config.blobs else {
        return vec![Finding::skipped("objects.reached", "blobs are in the data directory alone")];
    };
    let objects = match objects_of(blobs) {
        Ok(objects) => objects,
        Err(error) => {
            return vec![Finding::problem("objects.reached", error.to_string(), "mend this setting (blobs, s3)")];
        }
    };
    let asked = tokio::task::spawn_blocking(move || reached(&objects)).await;
    let reached = asked.unwrap_or_else(|error| Finding::skipped("objects.reached", error.to_string()));
    vec![reached, clock(blobs).await]
}

/// Asks for the mark that every start writes, and lists what is below the prefix.
fn reached(objects: &Arc<Objects>) -> Finding {
    const ID: &str = "objects.reached";
    let shown = objects.url();
    let failed = |error: io::Error| {
        let advice = match Failure::why(&error) {
            Some(Why::CredentialsRefused) => {
                "give the server a key that may list, read, write and delete in this bucket (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
            }
            Some(Why::NoBucket) => "make the bucket, or name the one that is meant (blobs)",
            Some(Why::OneObject | Why::Silent) | None => {
                "let the object store run, and name it rightly (s3.endpoint, s3.region, s3.ca, AWS_ENDPOINT_URL)"
            }
        };
        Finding::problem(ID, error.to_string(), advice)
    };
    let has_mark = match objects.size(MARK) {
        Ok(size) => size.is_some(),
        Err(error) => return failed(error),
    };
    let mut has_any = false;
    // The first is enough; the end is told as an error, which is this one's own.
    let listed = objects.each("", |_, _, _| {
        has_any = true;
        Err(io::Error::other("one is enough"))
    });
    match listed {
        Err(error) if !has_any => failed(error),
        _ if has_mark => Finding::ok(ID, format!("{shown} answers, and a server was started on it")),
        _ if has_any => Finding::warning(
            ID,
            format!("{shown} answers, holds objects, and no server of symseal was started on it"),
            "if it is another program's, name a prefix of its own (blobs = \"s3://BUCKET/PREFIX\")",
        ),
        _ => Finding::ok(ID, format!("{shown} answers, and is empty")),
    }
}

async fn clock(blobs: &BlobsConfig) -> Finding {
    const ID: &str = "objects.clock";
    let endpoint =
        blobs.endpoint.clone().or_else(|| variable("AWS_ENDPOINT_URL_S3")).or_else(|| variable("AWS_ENDPOINT_URL"));
    let url = endpoint.unwrap_or_else(|| {
        let region = blobs.region.clone().or_else(|| variable("AWS_REGION")).or_else(|| variable("AWS_DEFAULT_REGION"));
        format!("https://s3.{}.amazonaws.com", region.unwrap_or_else(|| "us-east-1".to_owned()))
    });
    // What it cannot be read from is told by the other finding.
    let authorities = blobs.ca.as_deref().and_then(|file| certificates(file).ok().and(read_certificates(file).ok()));
    let asked = SystemTime::now();
    match ask(&url, None, authorities.as_deref()).await {
        Asked::Answered { date: Some(theirs), .. } => {
            clocks::look(ID, "the object store", theirs, between(asked, SystemTime::now()), HTTP_DATE)
        }
        Asked::Answered { date: None, .. } => Finding::skipped(ID, "the object store does not say what time it is"),
        Asked::Silent(_) => Finding::skipped(ID, "the object store does not answer"),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
