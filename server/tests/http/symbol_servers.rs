//! What WinDbg, dotnet-symbol, Symbolicator, the Firefox Profiler and samply ask for, by the requests that they send. Ids and names are those
//! that other tools read in the files.

use std::path::{Path, PathBuf};

use crate::support::foreign::{SOURCE, code_id, guid_and_age, macos_library, text, uuid, value, windows_library};
use crate::support::programs::{Fixture, has, output, publish, run};
use reqwest::header::{
    ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW,
    CONTENT_LENGTH, CONTENT_RANGE, ETAG, RANGE,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// A DLL and its PDB, published; `None` without the tools that make and read them.
async fn published_library(fixture: &Fixture) -> Option<(PathBuf, PathBuf)> {
    let (dll, pdb) = windows_library(&fixture.root.path().join("windows"), SOURCE)?;
    publish(&fixture.server, fixture.root.path(), "1", &[&dll, &pdb]).await;
    Some((dll, pdb))
}

#[tokio::test]
async fn a_dll_and_its_pdb_are_found_as_symsrv_asks() {
    let fixture = Fixture::new().await;
    let Some((dll, pdb)) = published_library(&fixture).await else { return };

    let (guid, age) = guid_and_age(&pdb);
    let pdb_path = format!("/symbols/Native.pdb/{guid}{age:x}/Native.pdb");
    let dll_path = format!("/symbols/Native.dll/{}/Native.dll", code_id(&dll));

    for (path, file) in [(&pdb_path, &pdb), (&dll_path, &dll)] {
        let bytes = std::fs::read(file).unwrap();
        // WinDbg sends GUIDs in upper case, dotnet-symbol all in lower case.
        for path in [path.clone(), path.to_lowercase()] {
            let answer = fixture.get(&path).await;
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
            assert!(answer.headers().contains_key(ETAG));
            assert_eq!(answer.bytes().await.unwrap(), bytes, "{path}");
        }
        // The client takes compressed answers too, and gets them as soon as there are some.
        let head = fixture.http.head(fixture.server.url(path)).header(ACCEPT_ENCODING, "identity");
        assert_eq!(head.send().await.unwrap().headers()[CONTENT_LENGTH], bytes.len().to_string());
        let part = fixture.http.get(fixture.server.url(path)).header(RANGE, "bytes=4-9").send().await.unwrap();
        assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(part.headers()[CONTENT_RANGE], format!("bytes 4-9/{}", bytes.len()));
        assert_eq!(part.bytes().await.unwrap(), bytes[4..10]);
    }
    // Other ids, other names, and what clients try beside the file.
    let other_name = pdb_path.replace("Native", "Other");
    let other_age = format!("/symbols/Native.pdb/{guid}{:x}/Native.pdb", age + 1);
    let compressed = pdb_path.replace("/Native.pdb", "/Native.pd_").replacen("Native.pd_", "Native.pdb", 1);
    let pointer = pdb_path.trim_end_matches("Native.pdb").to_owned() + "file.ptr";
    for path in [
        &other_name,
        &other_age,
        &compressed,
        &pointer,
        "/symbols/index2.txt",
        "/symbols/../../etc/passwd",
        "/symbols/",
    ] {
        assert_eq!(fixture.get(path).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(fixture.get("/symbols/pingme.txt").await.status(), StatusCode::OK);
    let posted = fixture.http.post(fixture.server.url(&pdb_path)).send().await.unwrap();
    assert_eq!(
        (posted.status(), &posted.headers()[ALLOW]),
        (StatusCode::METHOD_NOT_ALLOWED, &"GET, HEAD".parse().unwrap())
    );
}

#[tokio::test]
async fn an_elf_file_and_its_debug_file_are_found_by_ssqp_keys_also_with_a_short_build_id() {
    if !["cc", "objcopy", "strip"].into_iter().all(has) {
        return;
    }
    let fixture = Fixture::new().await;
    for (version, id) in [("1", "0102030405060708"), ("2", "93ac61ec00112233445566778899aabbccddee00")] {
        let folder = fixture.root.path().join(format!("elf-{version}"));
        std::fs::create_dir(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        std::fs::write(at("lib.c"), SOURCE).unwrap();
        let (source, library, debug) = (at("lib.c"), at("libnative.so"), at("libnative.debug"));
        let id_flag = format!("-Wl,--build-id=0x{id}");
        run("cc", &["-g", "-O1", "-shared", "-fPIC", &id_flag, text(&source), "-o", text(&library)]);
        run("objcopy", &["--only-keep-debug", text(&library), text(&debug)]);
        run("strip", &[text(&library)]);
        publish(&fixture.server, fixture.root.path(), version, &[&library, &debug]).await;
        let padded = format!("{id:0<40}");
        for (path, file) in [
            (format!("/symbols/libnative.so/elf-buildid-{padded}/libnative.so"), &library),
            (format!("/symbols/_.debug/elf-buildid-sym-{padded}/_.debug"), &debug),
            (format!("/symbols/_.debug/ELF-BUILDID-SYM-{}/_.debug", padded.to_uppercase()), &debug),
        ] {
            let answer = fixture.get(&path).await;
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
            assert_eq!(answer.bytes().await.unwrap(), std::fs::read(file).unwrap(), "{path}");
        }
    }
    let wanted = async || {
        let told: Value = fixture.get("/api/v1/wanted").await.json().await.unwrap();
        let ids = told["wanted"].as_array().unwrap().iter().map(|wanted| wanted["id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<String>>()
    };
    // An id that is here is not missed, however it is written; nor is what a stranger makes up for others to read.
    let padded = format!("{:0<40}", "0102030405060708");
    for path in [
        "/symbols/a%E2%80%AEfdp.exe/5f3a1b2c1f000/a%E2%80%AEfdp.exe".to_owned(),
        format!("/symbols/{0}/5f3a1b2c1f000/{0}", "x".repeat(300)),
        format!("/buildid/{padded}/executable"),
    ] {
        assert_eq!(fixture.get(&path).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(wanted().await, Vec::<String>::new());
    let unknown = format!("/symbols/_.debug/elf-buildid-sym-{}/_.debug", "ab".repeat(20));
    assert_eq!(fixture.get(&unknown).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(wanted().await, ["ab".repeat(20)]);
}

#[tokio::test]
async fn a_mach_o_file_and_its_dsym_are_found_by_uuid() {
    let fixture = Fixture::new().await;
    let folder = fixture.root.path().join("macos");
    let Some((library, dwarf)) = macos_library(&folder, SOURCE) else { return };
    publish(&fixture.server, fixture.root.path(), "1", &[&folder]).await;

    let uuid = uuid(&dwarf);
    let parts = [&uuid[..4], &uuid[4..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..]].join("/");
    for (path, file) in [
        (format!("/symbols/libnative.dylib/mach-uuid-{uuid}/libnative.dylib"), &library),
        (format!("/symbols/_.dwarf/mach-uuid-sym-{uuid}/_.dwarf").to_lowercase(), &dwarf),
        (format!("/symbols/{parts}"), &dwarf),
        (format!("/symbols/{parts}.app"), &library),
    ] {
        let answer = fixture.get(&path).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        assert_eq!(answer.bytes().await.unwrap(), std::fs::read(file).unwrap(), "{path}");
    }
}

/// The frames that llvm-symbolizer has at an address: function, line; the innermost first.
fn llvm_frames(program: &Path, address: u64) -> Vec<(String, u64)> {
    let (object, address) = (format!("--obj={}", text(program)), format!("{address:#x}"));
    let told = output("llvm-symbolizer", &[&object, "--output-style=JSON", &address]);
    let told: Value = serde_json::from_str(&told).unwrap();
    let told = if told.is_array() { told[0].clone() } else { told };
    let frame = |frame: &Value| (frame["FunctionName"].as_str().unwrap().to_owned(), frame["Line"].as_u64().unwrap());
    told["Symbol"].as_array().unwrap().iter().map(frame).collect()
}

/// The same of an answer's frame.
fn answered_frames(frame: &Value) -> Vec<(String, u64)> {
    let one = |frame: &Value| (frame["function"].as_str().unwrap().to_owned(), frame["line"].as_u64().unwrap_or(0));
    let inlined = frame["inlines"].as_array().into_iter().flatten().map(one);
    inlined.chain([one(frame)]).collect()
}

#[tokio::test]
async fn the_firefox_profiler_gets_the_frames_that_llvm_symbolizer_has() {
    if !["cc", "llvm-symbolizer", "nm", "python3"].into_iter().all(has) {
        return;
    }
    let fixture = Fixture::new().await;
    let (source, library) = (fixture.root.path().join("lib.c"), fixture.root.path().join("libnative.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let id = "0102030405060708090a0b0c0d0e0f1011121314";
    let id_flag = format!("-Wl,--build-id=0x{id}");
    run("cc", &["-g", "-O1", "-shared", "-fPIC", &id_flag, text(&source), "-o", text(&library)]);
    publish(&fixture.server, fixture.root.path(), "1", &[&library]).await;
    // A GUID is what Python reads out of 16 bytes in the byte order of Windows.
    let program = format!("import uuid; print(uuid.UUID(bytes_le=bytes.fromhex('{}')).hex.upper() + '0')", &id[..32]);
    let breakpad_id = output("python3", &["-c", &program]).trim().to_owned();

    let told = output("nm", &["-S", "--defined-only", text(&library)]);
    let functions: Vec<(u64, u64)> = told
        .lines()
        .filter(|line| line.ends_with(" twice") || line.ends_with(" start"))
        .map(|line| {
            let numbers: Vec<&str> = line.split(' ').collect();
            (u64::from_str_radix(numbers[0], 16).unwrap(), u64::from_str_radix(numbers[1], 16).unwrap())
        })
        .collect();
    assert_eq!(functions.len(), 2);
    let addresses: Vec<u64> = functions.iter().flat_map(|(start, size)| *start..start + size).collect();
    let stack: Vec<Value> =
        addresses.iter().map(|address| json!([0, address])).chain([json!([1, 16]), json!([-1, 7])]).collect();
    let unknown = format!("{}0", "A".repeat(32));
    let request = json!({
        "jobs": [{
            "memoryMap": [["libnative.so", breakpad_id], ["other.pdb", unknown], ["unused", unknown]],
            "stacks": [stack],
        }],
        "version": 5,
    });
    let url = fixture.server.url("/symbolicate/v5");
    let origin = "https://profiler.firefox.com";
    let preflight = fixture
        .http
        .request(Method::OPTIONS, &url)
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type")
        .header("access-control-request-private-network", "true")
        .send()
        .await
        .unwrap();
    assert!(preflight.status().is_success());
    for (name, expected) in [
        (ACCESS_CONTROL_ALLOW_ORIGIN.as_str(), "*"),
        (ACCESS_CONTROL_ALLOW_METHODS.as_str(), "POST, OPTIONS"),
        (ACCESS_CONTROL_ALLOW_HEADERS.as_str(), "content-type"),
        ("access-control-allow-private-network", "true"),
    ] {
        assert_eq!(preflight.headers()[name], expected);
    }
    let answer = fixture.http.post(&url).header("origin", origin).json(&request).send().await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()[ACCESS_CONTROL_ALLOW_ORIGIN]),
        (StatusCode::OK, &"*".parse().unwrap())
    );
    let answer: Value = answer.json().await.unwrap();
    let result = &answer["results"][0];
    let frames = result["stacks"][0].as_array().unwrap();
    assert_eq!(frames.len(), addresses.len() + 2);
    let mut inlined = 0;
    for (address, frame) in addresses.iter().zip(frames) {
        assert_eq!(answered_frames(frame), llvm_frames(&library, *address), "{address:#x}");
        assert_eq!(
            (&frame["module"], &frame["module_offset"]),
            (&json!("libnative.so"), &json!(format!("{address:#x}")))
        );
        let (start, size) = functions.iter().find(|(start, size)| (*start..start + size).contains(address)).unwrap();
        assert_eq!(frame["function_offset"], format!("{:#x}", address - start));
        assert_eq!(frame["function_size"], format!("{size:#x}"));
        assert!(frame["file"].as_str().unwrap().ends_with("/lib.c"));
        inlined += usize::from(frame["inlines"].is_array());
    }
    assert!(inlined > 0, "no address has an inlined call");
    let [.., other, nowhere] = frames.as_slice() else { panic!() };
    assert_eq!((&other["module"], &other["function"]), (&json!("other.pdb"), &Value::Null));
    assert_eq!((&nowhere["module"], &nowhere["module_offset"]), (&json!("<unknown>"), &json!("0x7")));
    let found = &result["found_modules"];
    assert_eq!(found[&format!("libnative.so/{breakpad_id}")], true);
    assert_eq!(found[&format!("other.pdb/{unknown}")], false);
    assert_eq!(found.get(format!("unused/{unknown}")), Some(&Value::Null));
    assert_eq!(result["module_errors"][&format!("other.pdb/{unknown}")][0]["name"], "NotFound");

    for (body, status) in [("{}", 400), ("", 400), (r#"{"jobs":[],"version":4}"#, 400)] {
        let refused = fixture.http.post(&url).body(body).send().await.unwrap();
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()[ACCESS_CONTROL_ALLOW_ORIGIN]),
            (status, &"*".parse().unwrap())
        );
        assert!(refused.json::<Value>().await.unwrap()["error"].is_string());
    }
    assert_eq!(fixture.get("/symbolicate/v5").await.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_pdb_answers_the_profiler_by_its_guid_and_age() {
    let fixture = Fixture::new().await;
    let Some((dll, pdb)) = published_library(&fixture).await else { return };
    let (guid, age) = guid_and_age(&pdb);
    let id = format!("{guid}{age:x}");
    let told = output("llvm-readobj", &["--coff-exports", text(&dll)]);
    let (_, told) = told.split_once("Name: start").unwrap();
    let start = u64::from_str_radix(value(told, "RVA: 0x"), 16).unwrap();
    let request = json!({ "memoryMap": [["Native.pdb", id]], "stacks": [[[0, start]]] });
    let url = fixture.server.url("/symbolicate/v5");
    let answer: Value = fixture.http.post(&url).json(&request).send().await.unwrap().json().await.unwrap();
    let frame = &answer["results"][0]["stacks"][0][0];
    assert_eq!((&frame["function"], &frame["line"]), (&json!("start"), &json!(7)), "{answer}");
}
