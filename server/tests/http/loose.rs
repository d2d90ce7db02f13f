//! Files that are uploaded by themselves, as debuggers and curl see them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::Running;
use crate::support::foreign::{code_id, guid_and_age, macos_library, text, uuid, value, windows_library};
use crate::support::programs::{Fixture, has, output, publish, run};
use crate::trees::{get, origins};
use reqwest::StatusCode;
use serde_json::Value;
use symseal_bundle::Digest;

/// A program with a build-id, its debug information, and the two apart: whole, stripped, debug file.
fn compile(folder: &Path, id: &str) -> [PathBuf; 3] {
    let [source, whole, stripped, debug] = ["app.c", "app", "app.stripped", "app.debug"].map(|name| folder.join(name));
    std::fs::write(&source, "int twice(int x) { return 2 * x; } int main(void) { return twice(3) - 6; }\n").unwrap();
    let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
    run("cc", &["-g", &text(&source), "-o", &text(&whole), &format!("-Wl,--build-id=0x{id}")]);
    run("objcopy", &["--only-keep-debug", &text(&whole), &text(&debug)]);
    run("objcopy", &["--strip-all", &text(&whole), &text(&stripped)]);
    [whole, stripped, debug]
}

async fn put(fixture: &Fixture, query: &str, bytes: Vec<u8>) -> (StatusCode, Value) {
    let url = fixture.server.url(&format!("/api/v1/symbols?{query}"));
    let answer = fixture.http.put(url).body(bytes).send().await.unwrap();
    (answer.status(), serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
}

fn code(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or_default()
}

/// The program as it would be without section headers, with everything else that is in it.
fn without_section_headers(mut bytes: Vec<u8>) -> Vec<u8> {
    // e_shoff, and e_shentsize, e_shnum and e_shstrndx of a file of 64 bits.
    for range in [40..48, 58..64] {
        bytes[range].fill(0);
    }
    bytes
}

#[tokio::test]
async fn a_stripped_program_answers_before_one_without_section_headers() {
    if !has("cc") {
        return;
    }
    let id = "abcdef0123456789abcdef0123456789abcdef77";
    let root = tempfile::tempdir().unwrap();
    let [whole, stripped, _] = compile(root.path(), id).map(|path| std::fs::read(path).unwrap());
    let bare = without_section_headers(whole);
    assert!(bare.len() > stripped.len());
    let path = format!("/buildid/{id}/executable");
    for order in [[&bare, &stripped], [&stripped, &bare]] {
        let fixture = Fixture::new().await;
        for (name, bytes) in ["one", "two"].into_iter().zip(order) {
            assert_eq!(put(&fixture, &format!("name={name}"), bytes.clone()).await.0, StatusCode::CREATED);
        }
        assert_eq!(fixture.get(&path).await.bytes().await.unwrap(), stripped);
    }
    // By itself it is better than nothing.
    let fixture = Fixture::new().await;
    assert_eq!(put(&fixture, "name=app", bare.clone()).await.0, StatusCode::CREATED);
    assert_eq!(fixture.get(&path).await.bytes().await.unwrap(), bare);

    let tree = root.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let server = Running::start_with(&root.path().join("data"), &origins(&[&tree])).await;
    for (name, bytes) in [("bare", &bare), ("stripped", &stripped)] {
        std::fs::write(tree.join(name), bytes).unwrap();
        let started = Instant::now();
        while get(&fixture.http, &server, &path).await.1 != *bytes {
            assert!(started.elapsed() < Duration::from_secs(20), "the {name} program does not answer");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_name_is_what_a_form_says_and_is_found_by_what_a_form_says() {
    if !has("cc") {
        return;
    }
    let fixture = Fixture::new().await;
    let [full, ..] = compile(fixture.root.path(), "abcdef01");
    let bytes = std::fs::read(full).unwrap();
    for (query, name) in [
        // As Python, Go and browsers write a space, as RFC 3986 has it, and a plus.
        ("My+App.debug", "My App.debug"),
        ("My%20App.debug", "My App.debug"),
        ("a%2Bb%25.debug", "a+b%.debug"),
    ] {
        let url = fixture.server.url(&format!("/api/v1/symbols?name={query}"));
        let answer = fixture.http.put(url).body(bytes.clone()).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["name"], name, "{answer}");
        let found = fixture.get(&format!("/api/v1/search?q={query}")).await;
        let found: Value = found.json().await.unwrap();
        assert_eq!(found["releases"][0]["name"], name, "{found}");
    }
}

#[tokio::test]
async fn a_loose_file_is_found_by_its_name_as_debuginfod_asks_and_a_page_shows_what_is_in_the_name() {
    if !has("cc") {
        return;
    }
    let fixture = Fixture::new().await;
    let [full, ..] = compile(fixture.root.path(), "abcdef01");
    let (status, _) =
        put(&fixture, "name=app%E2%80%AEgubed.so&repository=loose/old", std::fs::read(full).unwrap()).await;
    assert_eq!(status, StatusCode::CREATED);
    let named = "app%E2%80%AEgubed.so";
    for (path, found) in [
        (format!("/metadata?key=file&value={named}"), true),
        ("/metadata?key=glob&value=app*".to_owned(), true),
        ("/s/loose/old/metadata?key=glob&value=*.so".to_owned(), true),
        ("/s/other/metadata?key=glob&value=*".to_owned(), false),
        ("/metadata?key=file&value=app".to_owned(), false),
        ("/metadata?key=glob&value=app".to_owned(), false),
    ] {
        let answer: Value = fixture.get(&path).await.json().await.unwrap();
        let kinds = ["debuginfo", "executable"];
        let wanted: Vec<Value> = kinds
            .iter()
            .filter(|_| found)
            .map(|kind| serde_json::json!({"buildid": "abcdef01", "type": kind, "file": "app\u{202e}gubed.so"}))
            .collect();
        assert_eq!(answer, serde_json::json!({"results": wanted, "complete": true}), "{path}");
    }
    // What turns round the text beside it is written out, wherever a page shows the name.
    for path in ["/", "/releases", "/search?q=gubed"] {
        let page = fixture.http.get(fixture.server.url(path)).header("accept", "text/html").send().await.unwrap();
        let page = page.text().await.unwrap();
        assert!(page.contains("app\\u{202e}gubed.so") && !page.contains('\u{202e}'), "{path}: {page}");
    }
}

#[tokio::test]
async fn a_loose_file_answers_for_what_is_in_it_until_it_is_removed() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let mut fixture = Fixture::new().await;
    let [_, stripped, debug] = compile(fixture.root.path(), "abcdef01");
    let (stripped, debug) = (std::fs::read(stripped).unwrap(), std::fs::read(debug).unwrap());
    let (status, answer) = put(&fixture, "name=app.debug&repository=loose/team", debug.clone()).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert_eq!(answer["digest"], Digest::of(&debug).to_string());
    assert_eq!(answer["ids"], serde_json::json!([{ "id": "abcdef01", "files": ["debuginfo"] }]));
    let manifest = answer["manifest"].as_str().unwrap().to_owned();
    assert_eq!(put(&fixture, "name=app", stripped.clone()).await.0, StatusCode::CREATED);
    assert_eq!(put(&fixture, "name=app", stripped.clone()).await.0, StatusCode::OK);
    for round in 0..3 {
        for (kind, bytes) in [("debuginfo", &debug), ("executable", &stripped)] {
            let answer = fixture.get(&format!("/buildid/abcdef01/{kind}")).await;
            assert!(answer.bytes().await.unwrap() == *bytes, "{kind}, round {round}");
        }
        assert!(fixture.get("/s/loose/team/buildid/abcdef01/debuginfo").await.status().is_success());
        assert_eq!(fixture.get("/s/loose/team/buildid/abcdef01/executable").await.status(), StatusCode::NOT_FOUND);
        let list: Value = fixture.get("/api/v1/symbols").await.json().await.unwrap();
        assert_eq!(list["files"].as_array().unwrap().len(), 2, "{list}");
        // What is listed is nobody's to collect.
        assert_eq!(fixture.server.collector.collect(Duration::ZERO).await.unwrap().blobs, 0);
        let data = fixture.root.path().join("data");
        if round == 1 {
            // The ids are read out of the files again where the index is lost.
            fixture.server.stop().await;
            std::fs::remove_file(data.join("ids.index")).unwrap();
            fixture.server = Running::start(&data).await;
        } else {
            fixture.server.stop().await;
            fixture.server = Running::start(&data).await;
        }
    }
    let delete = |path: String| fixture.http.delete(fixture.server.url(&path)).send();
    let gone = delete(format!("/api/v1/symbols/{manifest}?repository=loose")).await.unwrap();
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    let gone = delete(format!("/api/v1/symbols/{manifest}?repository=loose/team")).await.unwrap();
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    assert_eq!(fixture.get("/buildid/abcdef01/debuginfo").await.status(), StatusCode::NOT_FOUND);
    assert!(fixture.get("/buildid/abcdef01/executable").await.status().is_success());
    // Times of tellings are kept in milliseconds.
    tokio::time::sleep(Duration::from_millis(20)).await;
    // The file, its manifest; the empty configuration is the other one's too.
    assert_eq!(fixture.server.collector.collect(Duration::ZERO).await.unwrap().blobs, 2);
}

#[tokio::test]
async fn a_bundle_goes_before_a_loose_file_and_differing_bytes_are_told() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let fixture = Fixture::new().await;
    let [whole, _, debug] = compile(fixture.root.path(), "abcdef01");
    assert_eq!(put(&fixture, "name=app.debug", std::fs::read(debug).unwrap()).await.0, StatusCode::CREATED);
    publish(&fixture.server, fixture.root.path(), "1", &[&whole]).await;
    let answer = fixture.get("/buildid/abcdef01/debuginfo").await.bytes().await.unwrap();
    assert!(answer == std::fs::read(whole).unwrap());
    let alerts: Value = fixture.get("/api/v1/alerts").await.json().await.unwrap();
    assert_eq!(alerts["alerts"][0]["kind"], "different-bytes", "{alerts}");
}

#[tokio::test]
async fn what_nobody_could_ask_for_or_a_debugger_would_run_is_refused() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let fixture = Fixture::new().await;
    let [whole, ..] = compile(fixture.root.path(), "abcdef01");
    let bytes = std::fs::read(&whole).unwrap();
    for (query, body, expected) in [
        ("", bytes.clone(), "symbols-name"),
        ("name=", bytes.clone(), "symbols-invalid"),
        ("name=..%2Fapp", bytes.clone(), "symbols-invalid"),
        ("name=app-gdb.py", bytes.clone(), "symbols-invalid"),
        ("name=app-gdb.txt", b"print(1)".to_vec(), "symbols-invalid"),
        ("name=app&repository=prod", bytes.clone(), "symbols-repository"),
        ("name=app&repository=loose/..", bytes.clone(), "symbols-repository"),
        ("name=app", b"text".to_vec(), "symbols-invalid"),
        ("name=app", Vec::new(), "symbols-invalid"),
        ("name=app", bytes[..200].to_vec(), "symbols-invalid"),
    ] {
        let (status, answer) = put(&fixture, query, body).await;
        assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, expected), "{query}: {answer}");
    }
    // What is packed for the way is not unpacked, and not taken for a file that is no release file.
    let url = fixture.server.url("/api/v1/symbols?name=app");
    let answer = fixture.http.put(url).header("content-encoding", "gzip").body(bytes.clone()).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let answer: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(code(&answer), "symbols-encoding", "{answer}");
    // Nor is a part taken for the whole.
    let put_as = async |name: &'static str, value: &'static str, body: Vec<u8>| {
        let request = fixture.http.put(fixture.server.url("/api/v1/symbols?name=part"));
        let answer = request.header(name, value).body(body).send().await.unwrap();
        (answer.status(), answer.json::<Value>().await.unwrap())
    };
    let (status, answer) = put_as("content-range", "bytes 0-9/20", bytes.clone()).await;
    assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, "symbols-invalid"), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("Content-Range"), "{answer}");
    // Which is no coding.
    assert_eq!(put_as("content-encoding", "Identity", b"text".to_vec()).await.0, StatusCode::BAD_REQUEST);
    // One byte of kind 4 (an inline Python script), a name, and a script.
    let section = fixture.root.path().join("scripts");
    std::fs::write(&section, b"\x04name\nprint(1)\n\0").unwrap();
    let scripted = fixture.root.path().join("scripted");
    let add = format!("--add-section=.debug_gdb_scripts={}", section.display());
    run("objcopy", &[&add, whole.to_str().unwrap(), scripted.to_str().unwrap()]);
    let (status, answer) = put(&fixture, "name=app", std::fs::read(scripted).unwrap()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer["error"]["message"].as_str().unwrap().contains(".debug_gdb_scripts"), "{answer}");
    assert_eq!(fixture.get("/buildid/abcdef01/executable").await.status(), StatusCode::NOT_FOUND);
}

/// As bundles have it: gdb runs no such name, and a debugger's own program is called so.
#[tokio::test]
async fn a_program_called_as_a_debugger_is_taken() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let fixture = Fixture::new().await;
    let [whole, ..] = compile(fixture.root.path(), "abcdef02");
    let bytes = std::fs::read(whole).unwrap();
    let (status, answer) = put(&fixture, "name=arm-none-eabi-gdb.exe", bytes.clone()).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert!(fixture.get("/buildid/abcdef02/executable").await.bytes().await.unwrap() == bytes);
}

const LIBRARY: &str = "int start(int x) { return x * 3 + 1; }\n";

/// A file that was uploaded under its name; the ids that the server read in it.
async fn uploaded(fixture: &Fixture, file: &Path) -> (String, Vec<(String, Vec<String>)>) {
    let name = file.file_name().unwrap().to_str().unwrap();
    let (status, answer) = put(fixture, &format!("name={name}"), std::fs::read(file).unwrap()).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let id = |id: &Value| (id["id"].as_str().unwrap().to_owned(), serde_json::from_value(id["files"].clone()).unwrap());
    (answer["manifest"].as_str().unwrap().to_owned(), answer["ids"].as_array().unwrap().iter().map(id).collect())
}

/// Whether a path answers with a file.
async fn gives(fixture: &Fixture, path: &str, file: &Path) -> bool {
    let answer = fixture.get(path).await;
    assert!(matches!(answer.status(), StatusCode::OK | StatusCode::NOT_FOUND), "{path}: {}", answer.status());
    answer.status() == StatusCode::OK && answer.bytes().await.unwrap() == std::fs::read(file).unwrap()
}

#[tokio::test]
async fn a_dll_and_a_pdb_are_found_by_the_keys_of_windows_and_go_one_by_one() {
    let fixture = Fixture::new().await;
    let Some((dll, pdb)) = windows_library(&fixture.root.path().join("windows"), LIBRARY) else { return };
    let (guid, age) = guid_and_age(&pdb);
    let image = format!("/symbols/Native.dll/{}/Native.dll", code_id(&dll));
    let database = format!("/symbols/Native.pdb/{guid}{age:x}/Native.pdb");
    let (_, ids) = uploaded(&fixture, &dll).await;
    assert!(ids.iter().any(|(id, files)| *files == ["executable"] && id.to_uppercase().contains(&guid)), "{ids:?}");
    assert!(gives(&fixture, &image, &dll).await && gives(&fixture, &image.to_lowercase(), &dll).await);
    assert!(!gives(&fixture, &database, &pdb).await, "a DLL is no database");
    let (manifest, ids) = uploaded(&fixture, &pdb).await;
    assert!(ids.iter().any(|(id, files)| *files == ["debuginfo"] && id.to_uppercase().contains(&guid)), "{ids:?}");
    assert!(gives(&fixture, &database, &pdb).await);
    assert!(!gives(&fixture, &database.replace("Native", "Other"), &pdb).await);
    // Its functions have names, and lines as llvm-symbolizer reads them.
    let told = output("llvm-readobj", &["--coff-exports", text(&dll)]);
    let (_, told) = told.split_once("Name: start").unwrap();
    let start = u64::from_str_radix(value(told, "RVA: 0x"), 16).unwrap();
    let body = serde_json::json!({
        "memoryMap": [["Native.pdb", format!("{guid}{age:X}")]], "version": 5,
        "stacks": [[[0, start]]]
    });
    let answer = fixture.http.post(fixture.server.url("/symbolicate/v5")).json(&body).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    let frame = &answer["results"][0]["stacks"][0][0];
    assert_eq!((&frame["function"], &frame["line"]), (&"start".into(), &1.into()), "{answer}");

    let gone = fixture.http.delete(fixture.server.url(&format!("/api/v1/symbols/{manifest}?repository=loose")));
    assert_eq!(gone.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    assert!(!gives(&fixture, &database, &pdb).await && gives(&fixture, &image, &dll).await);
}

#[tokio::test]
async fn a_library_of_macos_and_the_file_of_its_dsym_are_found_by_uuid() {
    let fixture = Fixture::new().await;
    let Some((library, dwarf)) = macos_library(&fixture.root.path().join("macos"), LIBRARY) else { return };
    let uuid = uuid(&dwarf);
    let (code, symbols) = (
        format!("/symbols/libnative.dylib/mach-uuid-{uuid}/libnative.dylib").to_lowercase(),
        format!("/symbols/_.dwarf/mach-uuid-sym-{uuid}/_.dwarf").to_lowercase(),
    );
    // Both have the same name, and are told apart by what is in them.
    for (file, kind, path, other) in [(&dwarf, "debuginfo", &symbols, &code), (&library, "executable", &code, &symbols)]
    {
        let (_, ids) = uploaded(&fixture, file).await;
        let has_id = |(id, files): &(String, Vec<String>)| {
            id.replace('-', "").to_uppercase().contains(&uuid.to_uppercase()) && files.iter().any(|file| file == kind)
        };
        assert!(ids.iter().any(has_id), "{ids:?}");
        assert!(gives(&fixture, path, file).await, "{path}");
        if kind == "debuginfo" {
            assert!(!gives(&fixture, other, &library).await, "{other}");
        }
    }
    assert!(gives(&fixture, &symbols, &dwarf).await, "the library does not stand before its debug file");
}

#[tokio::test]
async fn gdb_and_debuginfod_find_get_what_curl_uploads() {
    if !has("cc") || !has("objcopy") || !has("curl") {
        return;
    }
    let fixture = Fixture::new().await;
    let [_, stripped, debug] = compile(fixture.root.path(), "abcdef01");
    let url = fixture.server.url("/api/v1/symbols?name=app.debug");
    let (file, upload) = (debug.clone(), move |file: PathBuf| {
        output("curl", &["-sS", "--fail-with-body", "-T", file.to_str().unwrap(), &url])
    });
    let answer = tokio::task::spawn_blocking(move || upload(file)).await.unwrap();
    assert!(answer.contains("\"abcdef01\""), "{answer}");
    let client = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("DEBUGINFOD_URLS", fixture.server.url(""))
            .env("DEBUGINFOD_CACHE_PATH", fixture.root.path().join(program));
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    if has("debuginfod-find") {
        let found = client("debuginfod-find", &["debuginfo", "abcdef01"]).await.unwrap();
        let path = String::from_utf8(found.stdout).unwrap();
        assert!(std::fs::read(path.trim()).unwrap() == std::fs::read(&debug).unwrap());
    }
    if has("gdb") {
        let program = stripped.to_str().unwrap().to_owned();
        let arguments = [
            "-nx",
            "-batch",
            "-iex",
            "set auto-load no",
            "-iex",
            "set debuginfod enabled on",
            "-ex",
            "info line twice",
            &program,
        ];
        let said = client("gdb", &arguments).await.unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("app.c") && said.contains("Line 1"), "{said}");
    }
}

#[tokio::test]
async fn addresses_are_named_by_the_code_id_of_a_program_that_was_uploaded_or_lies_in_a_directory() {
    let fixture = Fixture::new().await;
    let tree = fixture.root.path().join("windows");
    let Some((dll, pdb)) = windows_library(&tree, LIBRARY) else { return };
    let data = fixture.root.path().join("other");
    let origins = symseal_server::Origins { trees: vec![tree], ..Default::default() };
    let in_place = Running::start_with(&data, &origins).await;
    let told = output("llvm-readobj", &["--coff-exports", text(&dll)]);
    let export = told.split_once("Name: start").unwrap().1;
    let start: u64 = u64::from_str_radix(value(export, "RVA:").trim_start_matches("0x"), 16).unwrap();
    let ask = async |server: &Running, file: &str| -> Value {
        let body = serde_json::json!({
            "platform": "windows", "code_id": code_id(&dll), "code_file": file,
            "address_kind": "rva", "addresses": [format!("{start:#x}")],
        });
        fixture.http.post(server.url("/api/v1/resolve")).json(&body).send().await.unwrap().json().await.unwrap()
    };
    assert_eq!(ask(&fixture.server, "Native.dll").await["reason"], "not-in-bundle");
    for file in [&dll, &pdb] {
        uploaded(&fixture, file).await;
    }
    let (guid, age) = guid_and_age(&pdb);
    let until = std::time::Instant::now() + Duration::from_secs(30);
    for server in [&fixture.server, &in_place] {
        let answer = loop {
            let answer = ask(server, "native.DLL").await;
            if answer["reason"].is_null() || std::time::Instant::now() > until {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(answer["frames"][0]["frames"][0]["function"], "start", "{answer}");
        let id = answer["debug_id"].as_str().unwrap().to_uppercase();
        assert_eq!(id, format!("{}-{age:X}", guid.to_uppercase()), "{answer}");
        assert_eq!(ask(server, "other.dll").await["reason"], "not-in-bundle");
    }
}
