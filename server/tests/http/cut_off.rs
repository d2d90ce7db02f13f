//! A file of the store that was cut off, as by a crash or a copy that broke off, is given to nobody for the whole one.

use crate::support::programs::{has, publish};
use crate::support::upstreams::compile;
use crate::support::{Running, http};
use symseal_bundle::Digest;

#[tokio::test]
async fn a_blob_that_was_cut_off_is_not_given_for_the_whole_one() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let server = Running::start(&data).await;
    let file = compile(root.path(), "cut", "abcdef03", 64);
    publish(&server, root.path(), "1", &[&file]).await;
    let digest = Digest::of(&std::fs::read(&file).unwrap()).to_string();
    let hex = digest.trim_start_matches("sha256:");
    let paths = [
        "/buildid/abcdef03/executable".to_owned(),
        "/buildid/abcdef03/section/.text".to_owned(),
        "/buildid/abcdef03/section/.nothing".to_owned(),
        format!("/v2/app/blobs/{digest}"),
    ];
    let answered = async |path: &str| http().get(server.url(path)).send().await.map(|answer| answer.status().as_u16());
    for (path, expected) in paths.iter().zip([200, 200, 404, 200]) {
        assert_eq!(answered(path).await.unwrap(), expected, "{path}");
    }
    server.stop().await;
    let blob = data.join("blobs/sha256").join(&hex[..2]).join(hex);
    std::fs::File::options().write(true).open(blob).unwrap().set_len(5000).unwrap();
    let server = Running::start(&data).await;
    let answered = async |path: &str| http().get(server.url(path)).send().await.map(|answer| answer.status().as_u16());
    for path in &paths[..3] {
        assert!(answered(path).await.is_err(), "{path}: debuggers keep every answer");
    }
    let status = answered(&paths[3]).await.unwrap();
    assert!(status >= 500, "{status}");
    server.stop().await;
}
