//! Source files of other servers, which nothing can be held against: what is taken for one, for how long, and where an upstream may lead for it.

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::upstreams::{Does, Told, answer_with, asking, leads_to, ok};
use crate::support::{Running, http};
use reqwest::StatusCode;

const ID: &str = "abcdef03abcdef03abcdef03abcdef03abcdef03";
const SOURCE: &[u8] = b"int main(void) { return 0; }\n";

fn source() -> String {
    format!("/buildid/{ID}/source/usr/src/app.c")
}

/// Status and bytes, if they come whole.
async fn get(server: &Running, path: &str) -> Option<(StatusCode, Vec<u8>)> {
    let answer = http().get(server.url(path)).send().await.ok()?;
    let status = answer.status();
    Some((status, answer.bytes().await.ok()?.to_vec()))
}

async fn asks(data: &Path, upstreams: &[&Told]) -> Running {
    let urls: Vec<String> = upstreams.iter().map(|told| told.url.clone()).collect();
    Running::start_with(data, &asking(&urls)).await
}

/// The files of the cache are as old as that.
fn age(data: &Path, age: Duration) {
    for file in std::fs::read_dir(data.join("cache")).unwrap() {
        let file = std::fs::File::options().write(true).open(file.unwrap().path()).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }
}

fn cached(data: &Path) -> usize {
    std::fs::read_dir(data.join("cache")).unwrap().count()
}

#[tokio::test]
async fn what_can_be_told_to_be_no_source_file_is_neither_given_nor_kept() {
    let root = tempfile::tempdir().unwrap();
    let length = SOURCE.len();
    let answers = [
        ("a page", answer_with("Content-Type: text/html; charset=utf-8\r\nContent-Length: 6\r\n", b"<html>")),
        ("a page without a length", answer_with("Content-Type: Text/HTML\r\n", b"<html>")),
        ("another size", answer_with(&format!("Content-Length: {length}\r\nX-DEBUGINFOD-SIZE: 3000\r\n"), SOURCE)),
        ("less than its size", answer_with(&format!("X-DEBUGINFOD-SIZE: {}\r\n", length + 9), SOURCE)),
        ("more than its size", answer_with(&format!("X-DEBUGINFOD-SIZE: {}\r\n", length - 9), SOURCE)),
    ];
    for (case, answer) in answers {
        let told = Told::does(Does::Sends(answer)).await;
        let data = root.path().join(case);
        let near = asks(&data, &[&told]).await;
        let got = get(&near, &source()).await;
        assert!(got.is_none_or(|(status, _)| status == StatusCode::BAD_GATEWAY), "{case}");
        assert_eq!(cached(&data), 0, "{case}");
        // Whoever has it is not held up by one who has a page for everything.
        let good = Told::does(Does::SendsLater(Duration::from_millis(200), ok(length, SOURCE))).await;
        let near = asks(&root.path().join(format!("{case}, and a good one")), &[&told, &good]).await;
        let first = get(&near, &source()).await;
        let got = if case.contains("than its size") { get(&near, &source()).await } else { first };
        assert_eq!(got.unwrap(), (StatusCode::OK, SOURCE.to_vec()), "{case}");
    }
}

#[tokio::test]
async fn a_source_file_is_asked_for_again_after_an_hour_and_what_is_kept_is_given_where_nobody_can_tell() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let far = Told::does(Does::Sends(answer_with("", &SOURCE[..9]))).await;
    let near = asks(&data, &[&far]).await;
    let cut = (StatusCode::OK, SOURCE[..9].to_vec());
    assert_eq!(get(&near, &source()).await.unwrap(), cut, "nothing tells that it was cut short");
    far.does_now(Does::Sends(ok(SOURCE.len(), SOURCE)));
    age(&data, Duration::from_secs(3000));
    assert_eq!(get(&near, &source()).await.unwrap(), cut);
    assert_eq!(far.asked(), 1);
    age(&data, Duration::from_secs(4000));
    let whole = (StatusCode::OK, SOURCE.to_vec());
    assert_eq!(get(&near, &source()).await.unwrap(), whole);
    assert_eq!(get(&near, &source()).await.unwrap(), whole);
    assert_eq!(far.asked(), 2);

    // It fails, breaks off, or has a page for everything now.
    for failing in [
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
        ok(SOURCE.len(), &SOURCE[..9]),
        answer_with("Content-Type: text/html\r\n", b"<html>"),
    ] {
        far.does_now(Does::Sends(failing));
        age(&data, Duration::from_secs(4000));
        assert_eq!(get(&near, &source()).await.unwrap(), whole);
        assert_eq!(get(&near, &source()).await.unwrap(), whole);
    }
    far.does_now(Does::ByPath(Vec::new()));
    // It is left alone for a moment, as it broke off twice.
    let mut last = whole;
    for _ in 0..50 {
        last = get(&near, &source()).await.unwrap();
        if last.0 == StatusCode::NOT_FOUND {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(last.0, StatusCode::NOT_FOUND, "they say that there is none");
    assert_eq!(cached(&data), 0);
}

#[tokio::test]
async fn a_source_file_of_one_upstream_is_not_given_as_that_of_another() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let wrong = Told::does(Does::Sends(ok(4, b"page"))).await;
    let near = asks(&data, &[&wrong]).await;
    assert_eq!(get(&near, &source()).await.unwrap().1, b"page");
    near.stop().await;
    let right = Told::does(Does::Sends(ok(SOURCE.len(), SOURCE))).await;
    let near = asks(&data, &[&right]).await;
    assert_eq!(get(&near, &source()).await.unwrap().1, SOURCE);
    near.stop().await;
    // The order in which they are named is nobody's business, and neither is a restart.
    let both = asks(&data, &[&right, &wrong]).await;
    let first = get(&both, &source()).await.unwrap().1;
    both.stop().await;
    let asked = right.asked() + wrong.asked();
    let both = asks(&data, &[&wrong, &right]).await;
    assert_eq!(get(&both, &source()).await.unwrap().1, first);
    assert_eq!(right.asked() + wrong.asked(), asked);
}

#[tokio::test]
async fn an_upstream_leads_nobody_to_other_machines_of_the_network() {
    let root = tempfile::tempdir().unwrap();
    let secret = Told::does(Does::Sends(ok(6, b"secret"))).await;
    let far = Told::does(Does::Sends(leads_to(&format!("{}/latest/meta-data/", secret.url)))).await;
    let origins = asking(std::slice::from_ref(&far.url));
    let origins = symseal_server::Origins { symbol_upstreams: vec![far.url.clone()], ..origins };
    let near = Running::start_with(&root.path().join("data"), &origins).await;
    for path in
        [source(), format!("/buildid/{ID}/debuginfo"), format!("/symbols/a.pdb/{}1/a.pdb", ID[..32].to_uppercase())]
    {
        assert_eq!(get(&near, &path).await.unwrap().0, StatusCode::BAD_GATEWAY, "{path}");
    }
    // It answers, and is no dead server.
    assert_eq!(far.heads().iter().filter(|head| !head.starts_with("GET / ")).count(), 3);
    assert_eq!(secret.heads().len(), 0);
}

/// A token may be in the path; reqwest tells whoever is asked next where it was.
#[tokio::test]
async fn an_upstream_leads_within_itself_and_its_token_goes_no_further() {
    let root = tempfile::tempdir().unwrap();
    let store = ("/store/".to_owned(), ok(SOURCE.len(), SOURCE));
    let far = Told::does(Does::ByPath(vec![("/t/hunter2/".to_owned(), leads_to("/store/app.c")), store])).await;
    let origins = asking(&[format!("{}/t/hunter2", far.url)]);
    let near = Running::start_with(&root.path().join("data"), &origins).await;
    assert_eq!(get(&near, &source()).await.unwrap(), (StatusCode::OK, SOURCE.to_vec()));
    let heads = far.heads();
    let last = heads.iter().find(|head| head.starts_with("GET /store/")).unwrap();
    assert!(!last.to_lowercase().contains("referer") && !last.contains("hunter2"), "{last}");
}
