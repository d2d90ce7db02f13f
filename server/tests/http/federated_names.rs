//! `/metadata` of servers that ask other servers: what all of them have, and whether that is all.

use std::time::Duration;

use crate::support::debuginfod::Debuginfod;
use crate::support::programs::{has, publish};
use crate::support::upstreams::{Does, Told, answer_with, asking, compile};
use crate::support::{Running, http};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const NEAR: &str = "abcdef01abcdef01abcdef01abcdef01abcdef01";
const FAR: &str = "0123456701234567012345670123456701234567";

async fn metadata(server: &Running, query: &str) -> Value {
    http().get(server.url(&format!("/metadata?{query}"))).send().await.unwrap().json().await.unwrap()
}

/// What is found, as names, and whether that is all.
fn names(answer: &Value) -> (Vec<(&str, &str)>, bool) {
    let results = answer["results"].as_array().unwrap().iter();
    let files = results.map(|it| (it["buildid"].as_str().unwrap(), it["file"].as_str().unwrap()));
    let mut files: Vec<_> = files.collect();
    files.dedup();
    (files, answer["complete"].as_bool().unwrap())
}

#[tokio::test]
async fn what_servers_behind_a_server_have_is_found_by_name_too() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let (near_app, far_app) =
        (compile(root.path(), "near app", NEAR, 1000), compile(root.path(), "far app", FAR, 1000));
    let far = Running::start(&root.path().join("far")).await;
    publish(&far, root.path(), "1", &[&far_app]).await;
    let between = Running::start_with(&root.path().join("between"), &asking(&[far.url("")])).await;
    let near = Running::start_with(&root.path().join("near"), &asking(&[between.url("/")])).await;
    publish(&near, root.path(), "1", &[&near_app]).await;

    let both = metadata(&near, "key=glob&value=%2A%20app").await;
    assert_eq!(names(&both), (vec![(FAR, "far app"), (NEAR, "near app")], true), "{both}");
    let one = metadata(&near, "key=file&value=far%20app").await;
    assert_eq!(names(&one), (vec![(FAR, "far app")], true), "{one}");
    let id = metadata(&near, &format!("key=buildid&value={FAR}")).await;
    assert_eq!(names(&id), (vec![(FAR, "far app")], true), "{id}");
    let kinds: Vec<&Value> = id["results"].as_array().unwrap().iter().map(|it| &it["type"]).collect();
    assert_eq!(kinds, ["debuginfo", "executable"], "{id}");
    let no_id = metadata(&near, "key=buildid&value=none").await;
    assert_eq!(no_id, json!({ "results": [], "complete": true }));
    let head = http().head(near.url("/metadata?key=file&value=far%20app")).send().await.unwrap();
    assert!(head.status().is_success());

    // One that does not answer may have more.
    far.stop().await;
    let rest = metadata(&near, "key=glob&value=%2A%20app").await;
    assert_eq!(names(&rest), (vec![(NEAR, "near app")], false), "{rest}");
}

#[tokio::test]
async fn elfutils_server_is_asked_and_one_that_has_no_such_question_leaves_the_answer_open() {
    if !has("cc") || !has("debuginfod") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let app = compile(&folder, "far", FAR, 1000);
    let theirs = Debuginfod::start(&folder, &root.path().join("db")).await;
    let query = format!("key=file&value={}", app.display());
    let own = http().get(format!("{}/metadata?{query}", theirs.url)).send().await.unwrap();
    let expected = match own.status().is_success() {
        true => (vec![(FAR.to_owned(), app.display().to_string())], true),
        false => (Vec::new(), false),
    };
    let near = Running::start_with(&root.path().join("near"), &asking(std::slice::from_ref(&theirs.url))).await;
    let found = metadata(&near, &query).await;
    let (files, complete) = names(&found);
    let files: Vec<_> = files.into_iter().map(|(id, name)| (id.to_owned(), name.to_owned())).collect();
    assert_eq!((files, complete), expected, "{found}");
}

#[tokio::test]
async fn of_an_answer_that_the_protocol_does_not_allow_nothing_is_passed_on() {
    let root = tempfile::tempdir().unwrap();
    let sound = json!({ "type": "debuginfo", "buildid": FAR, "file": "/a", "archive": "/p.deb", "more": 1 });
    let unsound = [
        json!({ "type": "source", "buildid": FAR, "file": "/b" }),
        json!({ "type": "debuginfo", "buildid": "../../etc", "file": "/c" }),
        json!({ "type": "debuginfo", "buildid": FAR, "file": "d".repeat(5000) }),
    ];
    let results: Vec<&Value> = std::iter::once(&sound).chain(&unsound).collect();
    let strange = serde_json::to_vec(&json!({ "results": results, "complete": true })).unwrap();
    let told = json!({ "type": "debuginfo", "buildid": FAR, "file": "/a", "archive": "/p.deb" });
    let too_long = [br#"{"results":["#.as_slice(), &vec![b' '; 9 << 20], b"]}"].concat();
    let cases: [(Vec<u8>, Value); 4] = [
        (strange, json!({ "results": [told], "complete": true })),
        (too_long, json!({ "results": [], "complete": false })),
        (b"<html>".to_vec(), json!({ "results": [], "complete": false })),
        (br#"{"results":{},"complete":true}"#.to_vec(), json!({ "results": [], "complete": false })),
    ];
    for (number, (body, expected)) in cases.into_iter().enumerate() {
        let length = format!("Content-Length: {}\r\n", body.len());
        let far = Told::does(Does::Sends(answer_with(&length, &body))).await;
        let data = root.path().join(number.to_string());
        let near = Running::start_with(&data, &asking(std::slice::from_ref(&far.url))).await;
        assert_eq!(metadata(&near, "key=glob&value=*").await, expected, "{number}");
    }
}

#[tokio::test]
async fn servers_that_ask_each_other_for_names_come_to_an_end() {
    let root = tempfile::tempdir().unwrap();
    let place = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let other = format!("http://{}", place.local_addr().unwrap());
    drop(place);
    let first = Running::start_with(&root.path().join("a"), &asking(std::slice::from_ref(&other))).await;
    let address = other.trim_start_matches("http://").parse().unwrap();
    let _second = Running::start_at(&root.path().join("b"), address, &asking(&[first.url("")])).await;
    let found = metadata(&first, "key=glob&value=*").await;
    assert_eq!(found, json!({ "results": [], "complete": false }));
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_questions_go_to_other_servers_at_once() {
    let root = tempfile::tempdir().unwrap();
    let told = Told::does(Does::SendsLater(Duration::from_secs(20), Vec::new())).await;
    let near = Running::start_with(&root.path().join("data"), &asking(std::slice::from_ref(&told.url))).await;
    let questions = (0..20).map(|at| {
        let url = near.url(&format!("/metadata?key=file&value=app-{at}"));
        tokio::spawn(async move { http().get(url).send().await.unwrap().json::<Value>().await.unwrap() })
    });
    let questions: Vec<_> = questions.collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(told.asked(), 8);
    for question in questions {
        assert_eq!(question.await.unwrap(), serde_json::json!({ "results": [], "complete": false }));
    }
}
