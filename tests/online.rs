//! `--online` and `--lock` from the command line, against a server of ours with a release for three systems.

use crate::three_systems;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::program::{Ran, RunningServer, command, symseal, symseal_path};
use serde_json::Value;

/// A server with a release, and a user who knows of the server and has nothing else.
struct Scene {
    root: tempfile::TempDir,
    server: Option<RunningServer>,
    address: String,
    index: Value,
}

/// The function's address in a module of one system, as it is asked for.
struct Module {
    arguments: Vec<String>,
}

impl Scene {
    /// `None`, with a word about it, where a tool is missing.
    fn new() -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        let text = |name: &str| root.path().join(name).display().to_string();
        std::fs::create_dir(root.path().join("inputs")).unwrap();
        three_systems::make(&root.path().join("inputs"))?;
        let build =
            ["bundle", "build", &text("inputs"), "--name", "app", "--version", "1.0", "--output", &text("bundle")];
        symseal(build).ok();
        let server = RunningServer::start(&root.path().join("data"));
        symseal(["bundle", "push", &text("bundle"), &format!("{}/team/app:1.0", server.address)]).ok();
        let index = symseal(["bundle", "inspect", &text("bundle"), "--json"]).ok().json();
        Some(Self { root, address: server.address.clone(), server: Some(server), index })
    }

    fn at(&self, name: &str) -> String {
        self.root.path().join(name).display().to_string()
    }

    /// The module of a system, and how its function is asked for.
    fn module(&self, system: &str) -> Module {
        let (id, module) = self.index[system].as_object().unwrap().iter().next().unwrap();
        let dump = symseal(["index", "dump", &self.at("bundle"), "--debug-id", id, "--json"]).ok();
        let row = dump
            .stdout
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .find(|row| row["frames"][0]["function"] == "innermost_of_the_test")
            .unwrap_or_else(|| panic!("{}", dump.stdout));
        let number = |value: &Value| u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        let svma = number(&row["start"]);
        let mut arguments = vec!["--debug-id".to_owned(), id.clone()];
        match system {
            // A program database does not say where its program is loaded.
            "windows" => {
                let name = module["name"].as_str().unwrap();
                arguments.extend(["--module", name, "--rva"].map(str::to_owned));
                arguments.push(format!("{:#x}", svma - number(&module["image_base"])));
            }
            _ => arguments.push(format!("{svma:#x}")),
        }
        Module { arguments }
    }

    /// `symseal` as a user with this folder as a cache runs it.
    fn ask(&self, cache: &str, arguments: &[&str]) -> Ran {
        let url = format!("http://{}", self.address);
        let ran = command("symseal")
            .args(arguments)
            .env("DEBUGINFOD_URLS", format!("ima:ignore {url}"))
            .env("_NT_SYMBOL_PATH", format!(r"srv*C:\symbols*{url}/symbols"))
            .env("XDG_CACHE_HOME", self.at(cache))
            .env_remove("DEBUGINFOD_CACHE_PATH")
            .stdin(Stdio::null())
            .output();
        ran.expect("the program starts").into()
    }

    fn symbolize(&self, cache: &str, module: &Module, more: &[&str]) -> Ran {
        let mut arguments = vec!["symbolize", "--online", "--json"];
        arguments.extend(more);
        arguments.extend(module.arguments.iter().map(String::as_str));
        self.ask(cache, &arguments)
    }
}

#[track_caller]
fn assert_named(ran: &Ran, step: &str) {
    let found = ran.json();
    assert_eq!((&found["resolver"], &found["quality"]), (&step.into(), &"full".into()), "{found}\n{}", ran.stderr);
    assert_eq!((&found["frames"][0]["function"], &found["proof"]), (&"innermost_of_the_test".into(), &"none".into()));
}

const SYSTEMS: [(&str, &str); 3] = [("linux", "debuginfod"), ("windows", "symbol-server"), ("macos", "symbol-server")];

#[test]
fn our_server_names_modules_of_three_systems_and_a_lock_file_repeats_it_without_the_server() {
    let Some(mut scene) = Scene::new() else { return };
    let lock = scene.at("symbols.lock");
    let modules: Vec<(Module, &str)> = SYSTEMS.map(|(system, step)| (scene.module(system), step)).into();
    let mut told = Vec::new();
    for (module, step) in &modules {
        let ran = scene.symbolize("cache", module, &["--lock", &lock]).ok();
        assert_named(&ran, step);
        told.push(ran.stdout);
    }
    let pinned: Value = serde_json::from_slice(&std::fs::read(&lock).unwrap()).unwrap();
    let digests: Vec<_> = pinned["files"].as_object().unwrap().values().filter(|it| it["sha256"].is_string()).collect();
    assert_eq!(digests.len(), 3, "{pinned}");
    // What is pinned is repeated by whoever has the files: here the cache, when the server is gone.
    scene.server = None;
    for ((module, _), before) in modules.iter().zip(&told) {
        assert_eq!(scene.symbolize("cache", module, &["--lock", &lock, "--locked"]).ok().stdout, *before);
    }
    // Without the files there is no name, and no other one; what is pinned stays as it is.
    for (module, _) in &modules {
        let ran = scene.symbolize("empty", module, &["--lock", &lock, "--locked"]);
        assert_eq!(ran.status, 1, "{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.json()["reason"], "server-error", "{}", ran.stdout);
    }
    let after: Value = serde_json::from_slice(&std::fs::read(&lock).unwrap()).unwrap();
    assert_eq!(after, pinned);
}

#[test]
fn one_bundle_outranks_the_server_in_every_command() {
    let Some(scene) = Scene::new() else { return };
    let module = scene.module("linux");
    let (id, address) = (module.arguments[1].as_str(), module.arguments[2].as_str());
    let bundle = scene.at("bundle");
    // The server has what the bundle names.
    let ran = scene.ask("cache", &["explain", "symbol", &bundle, id, address, "--online", "--json"]).ok();
    let found = ran.json();
    assert_eq!((&found["resolver"], &found["proof"]), (&"debuginfod".into(), &"digest-known".into()), "{found}");
    // Another build of the same id is in its place in the cache: it is fetched again.
    let kept = PathBuf::from(scene.at("cache")).join("symseal/symbols/files/debug-file").join(id);
    let mut bytes = std::fs::read(&kept).unwrap();
    let at = bytes.windows(10).position(|window| window == b"innermost_").unwrap();
    bytes[at] = b'I';
    std::fs::write(&kept, &bytes).unwrap();
    let ran = scene.ask("cache", &["symbolize", "--online", "--bundle", &bundle, "--debug-id", id, address, "--json"]);
    assert_eq!(ran.ok().json()["frames"][0]["function"], "innermost_of_the_test");
}

#[test]
fn who_may_ask_nobody_is_told_why() {
    let Some(scene) = Scene::new() else { return };
    let id = scene.module("linux").arguments[1].clone();
    let ask = |urls: &str, path: &str| -> Ran {
        let ran = command("symseal")
            .args(["symbolize", "--online", "--debug-id", &id, "0x1000"])
            .envs([("DEBUGINFOD_URLS", urls), ("_NT_SYMBOL_PATH", path), ("XDG_CACHE_HOME", &scene.at("cache"))])
            .stdin(Stdio::null())
            .output();
        ran.unwrap().into()
    };
    ask("ima:enforcing", "").refused(2, &["no server to ask", "DEBUGINFOD_URLS"]);
    ask("file:///usr/lib/debug", r"C:\symbols")
        .refused(2, &["file:///usr/lib/debug is passed over", r"C:\symbols is passed over", "no server to ask"]);
    let locked = scene.symbolize("cache", &scene.module("linux"), &["--lock", &scene.at("none.lock"), "--locked"]);
    locked.refused(2, &["none.lock", "No such file"]);
}

#[test]
fn neither_a_cache_that_cannot_be_used_nor_a_wrong_url_keeps_anybody_from_a_name() {
    let Some(scene) = Scene::new() else { return };
    let module = scene.module("linux");
    std::fs::write(scene.at("file"), "").unwrap();
    let ran = scene.symbolize("file", &module, &[]).ok();
    assert_named(&ran, "debuginfod");
    assert!(ran.stderr.contains("the cache") && ran.stderr.contains("for this run alone"), "{}", ran.stderr);
    let urls = format!("nonsense http:// http://{}", scene.address);
    let ran = command("symseal")
        .args(["symbolize", "--online", "--json"])
        .args(&module.arguments)
        .envs([("DEBUGINFOD_URLS", urls.as_str()), ("XDG_CACHE_HOME", &scene.at("cache"))])
        .stdin(Stdio::null())
        .output();
    let ran = Ran::from(ran.unwrap()).ok();
    assert_named(&ran, "debuginfod");
    for word in
        ["DEBUGINFOD_URLS: word 1 is passed over: expected", "DEBUGINFOD_URLS: http://: expected", "passed over"]
    {
        assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
    }
}

#[cfg(unix)]
#[test]
fn a_cache_of_another_user_keeps_nobody_from_a_name() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let Some(scene) = Scene::new() else { return };
    let module = scene.module("linux");
    // Root's, as once with `sudo -E`.
    assert_named(&scene.symbolize("cache", &module, &[]).ok(), "debuginfod");
    let program = scene.at("symseal");
    std::fs::copy(symseal_path(), &program).unwrap();
    std::fs::set_permissions(scene.at("."), std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran = Command::new(&program)
        .args(["symbolize", "--online", "--json"])
        .args(&module.arguments)
        .envs([("DEBUGINFOD_URLS", format!("http://{}", scene.address)), ("XDG_CACHE_HOME", scene.at("cache"))])
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .uid(65534)
        .gid(65534)
        .output();
    let Ok(ran) = ran else {
        println!("SKIP setuid: not permitted to become another user");
        return;
    };
    let ran = Ran::from(ran).ok();
    assert_named(&ran, "debuginfod");
    assert!(ran.stderr.contains("for this run alone"), "{}", ran.stderr);
}

/// A server that has one file, takes its time, and counts how often each path is asked for.
struct Counting {
    url: String,
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Counting {
    fn new(path: String, bytes: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(BTreeMap::new()));
        let (counted, file) = (Arc::clone(&asked), Arc::new((path, bytes)));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (counted, file) = (Arc::clone(&counted), Arc::clone(&file));
                std::thread::spawn(move || {
                    let (mut head, mut byte) = (Vec::new(), [0]);
                    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8_lossy(&head);
                    let path = head.split(' ').nth(1).unwrap_or_default();
                    *counted.lock().unwrap().entry(path.to_owned()).or_default() += 1;
                    // Long enough for the other process to want it as well.
                    std::thread::sleep(Duration::from_secs(2));
                    let (status, body) =
                        if path == file.0 { ("200 OK", file.1.as_slice()) } else { ("404 Not Found", &[][..]) };
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
                });
            }
        });
        Self { url, asked }
    }
}

#[test]
fn two_processes_at_once_fetch_each_file_once() {
    let Some(scene) = Scene::new() else { return };
    let module = scene.module("linux");
    let (id, address) = (module.arguments[1].as_str(), module.arguments[2].as_str());
    scene.symbolize("first", &module, &[]).ok();
    let kept = PathBuf::from(scene.at("first")).join("symseal/symbols/files/debug-file").join(id);
    let (path, absent) = (format!("/buildid/{id}/debuginfo"), "cd".repeat(20));
    let server = Counting::new(path.clone(), std::fs::read(kept).unwrap());
    let start = || {
        let mut child = command("symseal")
            .args(["symbolize", "--online", "--json"])
            .envs([("DEBUGINFOD_URLS", &server.url), ("XDG_CACHE_HOME", &scene.at("shared"))])
            .env_remove("_NT_SYMBOL_PATH")
            .env_remove("DEBUGINFOD_CACHE_PATH")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let lines = format!("{id} {address}\n{absent} 0x10\n");
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        child
    };
    for child in [start(), start()] {
        let ran = Ran::from(child.wait_with_output().unwrap());
        let rows: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows[0]["frames"][0]["function"], "innermost_of_the_test", "{}{}", ran.stdout, ran.stderr);
        assert_eq!(rows[1]["reason"], "server-miss", "{}{}", ran.stdout, ran.stderr);
    }
    let once = |path: String| (path, 1);
    let files = [path, format!("/buildid/{absent}/debuginfo"), format!("/buildid/{absent}/executable")];
    assert_eq!(*server.asked.lock().unwrap(), files.map(once).into());
}

#[test]
fn who_was_not_asked_was_skipped() {
    let Some(scene) = Scene::new() else { return };
    let step = |ran: &Ran, name: &str| -> Value {
        let tried = ran.json()["tried"].clone();
        tried
            .as_array()
            .unwrap()
            .iter()
            .find(|tried| tried["step"] == name)
            .unwrap_or_else(|| panic!("{tried}"))
            .clone()
    };
    // The lock file names the module of another system.
    let lock = scene.at("symbols.lock");
    scene.symbolize("cache", &scene.module("macos"), &["--lock", &lock]).ok();
    let locked = scene.symbolize("cache", &scene.module("linux"), &["--explain", "--lock", &lock, "--locked"]);
    let debuginfod = step(&locked, "debuginfod");
    assert_eq!(debuginfod["outcome"]["skipped"], "not-allowed", "{debuginfod}");
    assert_eq!(debuginfod["detail"], "the lock file does not name it");
    // Nobody knows the file name by which a program database is asked for.
    let pdb = ["--debug-id", "0102030405060708090a0b0c0d0e0f10-1", "--rva", "0x1000"];
    let arguments = [&["symbolize", "--online", "--json", "--explain"][..], &pdb].concat();
    let ran = scene.ask("cache", &arguments);
    let nameless = step(&ran, "symbol-server");
    assert_eq!(
        ran.json()["reason"],
        "unsupported",
        "what could not be asked, and not what was never to be: {}",
        ran.stdout
    );
    assert_eq!(nameless["outcome"]["skipped"], "unsupported", "{nameless}");
    assert!(nameless["detail"].as_str().unwrap().contains("file name"), "{nameless}");
    // And with it, where there are debuginfod servers alone.
    let ran = command("symseal")
        .args([&arguments[..], &["--module", "app.pdb"]].concat())
        .envs([("DEBUGINFOD_URLS", format!("http://{}", scene.address)), ("XDG_CACHE_HOME", scene.at("cache"))])
        .env_remove("_NT_SYMBOL_PATH")
        .stdin(Stdio::null())
        .output();
    let ran = Ran::from(ran.unwrap());
    let nobody = step(&ran, "symbol-server");
    assert_eq!(ran.json()["reason"], "unsupported", "{}", ran.stdout);
    assert_eq!(nobody["outcome"]["skipped"], "unsupported", "{nobody}");
    assert!(nobody["detail"].as_str().unwrap().contains("_NT_SYMBOL_PATH"), "{nobody}");
}
