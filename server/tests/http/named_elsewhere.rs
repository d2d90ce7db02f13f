//! Names out of files that came without a bundle, in pieces or from other servers: as if all of it had been published here.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::foreign::{SOURCE, code_id, guid_and_age, text, windows_library};
use crate::support::programs::{Fixture, has, publish, run};
use crate::support::upstreams::asking;
use crate::support::{Running, http};
use axum::http::Uri;
use reqwest::StatusCode;
use serde_json::{Value, json};
use symseal_server::{AccessConfig, Config, Origins};

const ID: &str = "0123456701234567012345670123456701234567";

/// What `/symbolicate/v5` says of the first bytes of a module's code.
async fn frames(server: &Running, name: &str, id: &str) -> Value {
    let stack: Vec<(u32, u32)> = (0x1000..0x1030).map(|offset| (0, offset)).collect();
    let body = json!({ "jobs": [{ "memoryMap": [[name, id]], "stacks": [stack] }], "version": 5 });
    let answer = http().post(server.url("/symbolicate/v5")).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let answer: Value = answer.json().await.unwrap();
    answer["results"][0].clone()
}

async fn resolve(server: &Running, body: &Value) -> (StatusCode, Value) {
    let answer = http().post(server.url("/api/v1/resolve")).json(body).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

/// The frames of an answer with what they rest on left out.
fn named(answer: &Value) -> Vec<&Value> {
    answer["frames"].as_array().unwrap().iter().map(|frame| &frame["frames"]).collect()
}

/// A server of static files, and what it was asked for.
struct Store {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Store {
    async fn of(files: HashMap<String, Vec<u8>>) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&asked);
        let serve = async move |uri: Uri| {
            heard.lock().unwrap().push(uri.path().to_owned());
            files.get(uri.path().trim_start_matches('/')).cloned().ok_or(StatusCode::NOT_FOUND)
        };
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(serve)).await });
        Self { url, asked }
    }

    fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

async fn asking_symbols(data: &Path, url: String) -> Running {
    Running::start_with(data, &Origins { symbol_upstreams: vec![url], ..asking(&[]) }).await
}

#[tokio::test]
async fn a_pdb_has_its_image_base_wherever_its_program_lies() {
    let published = Fixture::new().await;
    let folder = published.root.path();
    let Some((dll, pdb)) = windows_library(&folder.join("windows"), SOURCE) else { return };
    publish(&published.server, folder, "1", &[&dll, &pdb]).await;
    let (guid, age) = guid_and_age(&pdb);
    let addresses: Vec<String> = (0x1000_u64..0x1030).map(|rva| format!("{:#x}", 0x1_8000_0000 + rva)).collect();
    let question = json!({ "platform": "windows", "debug_id": format!("{guid}-{age:x}"), "addresses": addresses });
    let (_, expected) = resolve(&published.server, &question).await;
    assert_eq!(expected["image_base"], "0x180000000", "{expected}");
    assert!(named(&expected).iter().any(|frames| frames[0]["inlined"] == true), "{expected}");

    // Both in a tree, then the one there and the other uploaded.
    for uploaded in [None, Some(&pdb), Some(&dll)] {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        for file in [&dll, &pdb].into_iter().filter(|file| Some(*file) != uploaded) {
            std::fs::copy(file, tree.join(file.file_name().unwrap())).unwrap();
        }
        let origins = Origins { trees: vec![tree], ..Origins::default() };
        let server = Running::start_with(&root.path().join("data"), &origins).await;
        if let Some(file) = uploaded {
            let name = text(Path::new(file.file_name().unwrap()));
            let url = server.url(&format!("/api/v1/symbols?name={name}"));
            let answer = http().put(url).body(std::fs::read(file).unwrap()).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::CREATED);
        }
        let started = Instant::now();
        let answer = loop {
            let (_, answer) = resolve(&server, &question).await;
            if answer["image_base"] == expected["image_base"] {
                break answer;
            }
            assert!(started.elapsed() < Duration::from_secs(10), "{uploaded:?} uploaded: {answer}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(named(&answer), named(&expected), "{uploaded:?} uploaded");
    }
}

#[tokio::test]
async fn a_store_that_tells_cases_apart_is_asked_as_symstore_writes_and_a_name_in_another_case_hides_nothing() {
    let root = tempfile::tempdir().unwrap();
    let Some((_, pdb)) = windows_library(&root.path().join("windows"), SOURCE) else { return };
    let (bytes, (guid, age)) = (std::fs::read(&pdb).unwrap(), guid_and_age(&pdb));
    let id = format!("{}{age:x}", guid.to_uppercase());
    let store = Store::of(HashMap::from([(format!("Native.pdb/{id}/Native.pdb"), bytes.clone())])).await;
    let near = asking_symbols(&root.path().join("near"), store.url.clone()).await;
    let get = async |name: &str, id: &str| {
        let answer = http().get(near.url(&format!("/symbols/{name}/{id}/{name}"))).send().await.unwrap();
        (answer.status(), answer.bytes().await.unwrap())
    };
    // What the file is called there cannot be known from this.
    assert_eq!(get("native.pdb", &id.to_lowercase()).await.0, StatusCode::NOT_FOUND);
    assert!(get("Native.pdb", &id.to_lowercase()).await == (StatusCode::OK, bytes.clone().into()));
    let asked = store.take_asked();
    assert_eq!(asked.last(), Some(&format!("/Native.pdb/{id}/Native.pdb")), "{asked:?}");
    // Once it is here the case is nobody's concern.
    assert!(get("native.pdb", &id).await == (StatusCode::OK, bytes.into()));
    assert!(store.take_asked().is_empty());
}

#[tokio::test]
async fn a_library_that_another_symbol_server_has_is_named_as_there() {
    let far = Fixture::new().await;
    let folder = far.root.path();
    let Some((dll, pdb)) = windows_library(&folder.join("windows"), SOURCE) else { return };
    publish(&far.server, folder, "1", &[&dll, &pdb]).await;
    let (guid, age) = guid_and_age(&pdb);
    let id = format!("{guid}{age:x}");
    let expected = frames(&far.server, "Native.pdb", &id).await;
    assert_eq!(expected["found_modules"][format!("Native.pdb/{id}")], true, "{expected}");
    let near = asking_symbols(&folder.join("near"), far.server.url("/symbols")).await;
    let found = frames(&near, "Native.pdb", &id).await;
    assert_eq!(found, expected);
    let question = json!({
        "platform": "windows", "debug_id": format!("{guid}-{age:x}"), "debug_file": "Native.pdb",
        "address_kind": "rva", "addresses": ["0x1000"],
    });
    let (_, there) = resolve(&far.server, &question).await;
    let (_, here) = resolve(&near, &question).await;
    assert_eq!(named(&here), named(&there));
    assert_eq!((&here["frames"][0]["proof"], &here["provenance"]["bundle"]), (&json!("none"), &Value::Null));
    let sha256 = symseal_bundle::Digest::of(&std::fs::read(&pdb).unwrap()).to_string();
    assert_eq!(here["provenance"]["made_of"], sha256);
    // Its symbol file, of what the PDB alone says.
    let path = format!("/symbols/Native.pdb/{id}/Native.sym");
    let symbols = http().get(near.url(&path)).send().await.unwrap().text().await.unwrap();
    assert!(symbols.starts_with(&format!("MODULE windows x86_64 {id} Native.pdb\n")), "{symbols}");
    assert!(symbols.lines().any(|line| line.starts_with("FUNC 1000 ") && line.ends_with(" twice")), "{symbols}");

    // By the code id of a program that is here the PDB's name is known.
    let url = near.url("/api/v1/symbols?name=Native.dll");
    let put = http().put(url).body(std::fs::read(&dll).unwrap()).send().await.unwrap();
    assert_eq!(put.status(), StatusCode::CREATED);
    let by_code = json!({
        "platform": "windows", "code_id": code_id(&dll), "code_file": "Native.dll",
        "addresses": ["0x180001000"],
    });
    let (_, answer) = resolve(&near, &by_code).await;
    assert_eq!((named(&answer), &answer["image_base"]), (named(&there), &json!("0x180000000")));

    let by_code = format!("/symbols/Native.dll/{}/Native.sym", code_id(&dll));
    let led = http().get(near.url(&by_code)).send().await.unwrap();
    assert!(led.url().path() == path && led.text().await.unwrap().starts_with("MODULE windows "));

    // What cannot be told now is told so, and what nobody has is not asked for again and again.
    let other = "000000000000000000000000000000011";
    let missing = frames(&near, "other.pdb", other).await;
    assert_eq!(missing["module_errors"][format!("other.pdb/{other}")][0]["name"], "NotFound", "{missing}");
    far.server.stop().await;
    let missing = frames(&near, "other.pdb", other).await;
    assert_eq!(missing["module_errors"][format!("other.pdb/{other}")][0]["name"], "NotFound", "{missing}");
    let away = frames(&near, "third.pdb", other).await;
    let error = &away["module_errors"][format!("third.pdb/{other}")][0];
    assert_eq!(error["name"], "Unreadable", "{away}");
    assert!(error["message"].as_str().unwrap().contains("ask again"), "{away}");
    let question = json!({
        "platform": "windows", "debug_id": "00000000000000000000000000000002-1", "debug_file": "fourth.pdb",
        "addresses": ["0x1"],
    });
    let (status, answer) = resolve(&near, &question).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("upstream-away")));
}

#[tokio::test]
async fn a_program_that_another_debuginfod_server_has_is_named_as_there() {
    if !has("cc") {
        return;
    }
    let far = Fixture::new().await;
    let folder = far.root.path();
    let (source, binary) = (folder.join("app.c"), folder.join("app"));
    std::fs::write(&source, format!("{SOURCE}int main(void) {{ return start(1); }}\n")).unwrap();
    run("cc", &["-g", "-O1", text(&source), "-o", text(&binary), &format!("-Wl,--build-id=0x{ID}")]);
    publish(&far.server, folder, "1", &[&binary]).await;
    let addresses: Vec<String> = (0x1000..0x1400).map(|address| format!("{address:#x}")).collect();
    let question = json!({ "platform": "linux", "debug_id": ID, "addresses": addresses });
    let (_, there) = resolve(&far.server, &question).await;
    let near = Running::start_with(&folder.join("near"), &asking(&[far.server.url("")])).await;
    let (_, here) = resolve(&near, &question).await;
    assert_eq!(named(&here), named(&there));
    assert!(named(&here).iter().any(|frames| frames[0]["function"] == "add"), "{here}");

    // Strangers get nothing of what other servers have.
    let mut config = Config::new(folder.join("closed"), ([127, 0, 0, 1], 0).into());
    config.access = AccessConfig::Tokens { anonymous_read: vec!["public".parse().unwrap()] };
    let server = symseal_server::Server::bind(config).await.unwrap();
    let closed = Running::run(server.with_origins(&asking(&[far.server.url("")])).unwrap());
    let (_, answer) = resolve(&closed, &question).await;
    assert_eq!(answer["reason"], "not-in-bundle", "{answer}");
}

#[tokio::test]
async fn a_symbol_store_gives_what_it_has_packed_and_no_pointer_is_followed() {
    if !has("gcab") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let Some((dll, pdb)) = windows_library(&root.path().join("windows"), SOURCE) else { return };
    let cabinet = |name: &str, files: &[&Path]| {
        let path = root.path().join(name);
        run(
            "gcab",
            &[&["-c", "-z", "-n", text(&path)][..], &files.iter().map(|it| text(it)).collect::<Vec<_>>()].concat(),
        );
        std::fs::read(path).unwrap()
    };
    let (guid, age) = guid_and_age(&pdb);
    let (id, code) = (format!("{guid}{age:x}"), code_id(&dll));
    let packed = cabinet("one.cab", &[&pdb]);
    let mut torn = packed.clone();
    torn.truncate(packed.len() / 2);
    let store = Store::of(HashMap::from([
        (format!("Native.pdb/{id}/Native.pd_"), packed),
        (format!("native.pdb/{id}/native.pd_"), cabinet("two.cab", &[&pdb, &dll])),
        (format!("nativE.pdb/{id}/nativE.pd_"), torn),
        (format!("NATIVE.pdb/{id}/NATIVE.pd_"), b"<html>".to_vec()),
        (format!("Native.dll/{code}/Native.dl_"), cabinet("other.cab", &[&pdb])),
        (format!("Other.pdb/{id}/file.ptr"), format!("PATH:{}", text(&pdb)).into_bytes()),
    ]))
    .await;
    let get = async |server: &Running, path: &str| {
        let answer = http().get(server.url(&format!("/symbols/{path}"))).send().await.unwrap();
        (answer.status(), answer.bytes().await.unwrap())
    };
    let bytes = std::fs::read(&pdb).unwrap();
    let near = asking_symbols(&root.path().join("near"), store.url.clone()).await;
    let path = format!("Native.pdb/{id}/Native.pdb");
    for _ in 0..2 {
        let (status, sent) = get(&near, &path).await;
        assert!((status, sent.len()) == (StatusCode::OK, bytes.len()) && sent == bytes);
    }
    assert_eq!(store.take_asked(), [format!("/{path}"), format!("/Native.pdb/{id}/Native.pd_")]);
    let named = frames(&near, "Native.pdb", &id).await;
    assert_eq!(named["stacks"][0][0]["function"], "twice", "{named}");

    let wrong = asking_symbols(&root.path().join("wrong"), store.url.clone()).await;
    for (what, path) in [
        ("two files", format!("native.pdb/{id}/native.pdb")),
        ("another file", format!("Native.dll/{code}/Native.dll")),
    ] {
        assert_eq!(get(&wrong, &path).await.0, StatusCode::BAD_GATEWAY, "{what}");
    }
    // These differ in nothing but their case, by which the cache knows no files.
    for (what, name) in [("torn", "nativE"), ("no cabinet", "NATIVE")] {
        let path = format!("{name}.pdb/{id}/{name}.pdb");
        assert_eq!(get(&wrong, &path).await.0, StatusCode::BAD_GATEWAY, "{what}");
    }
    assert_eq!(std::fs::read_dir(root.path().join("wrong/cache")).unwrap().count(), 0);
    store.take_asked();
    assert_eq!(get(&near, &format!("Other.pdb/{id}/Other.pdb")).await.0, StatusCode::NOT_FOUND);
    assert!(store.take_asked().iter().all(|path| !path.ends_with("file.ptr")));
}
