//! `symseal upload` against a server.

use crate::downloads;
use crate::program;
use crate::three_systems;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use symseal_server::{Config, Server};

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn files_and_directories_are_uploaded_and_what_is_refused_is_said() {
    if !run("cc", &["--version"]).status.success() {
        println!("SKIP cc: not found");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let tree = at("tree/deep");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(at("a.c"), "int main(void) { return 0; }\n").unwrap();
    let program = tree.join("app");
    let built = run("cc", &["-g", &text(&at("a.c")), "-o", &text(&program), "-Wl,--build-id=0xabcdef07"]);
    assert!(built.status.success());
    std::fs::write(tree.join("notes.txt"), "no release file").unwrap();

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = runtime.block_on(Server::bind(Config::new(at("data"), ([127, 0, 0, 1], 0).into()))).unwrap();
    let url = format!("http://{}", server.local_addr());
    let _serving = runtime.spawn(server.run(std::future::pending::<()>()));

    let upload = |arguments: &[&str]| {
        let mut all = vec!["upload", "--to", &url];
        all.extend(arguments);
        let output = run(env!("CARGO_BIN_EXE_symseal"), &all);
        let said = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), said, String::from_utf8(output.stderr).unwrap())
    };
    let (status, said, error) = upload(&["--json", "--repository", "loose/team", &text(&at("tree"))]);
    assert_eq!(status, Some(0), "{error}");
    let [line] = said.lines().collect::<Vec<_>>().try_into().unwrap();
    let answer: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&answer["status"], &answer["repository"]), (&201.into(), &"loose/team".into()), "{answer}");
    assert_eq!(answer["file"], text(&program));
    assert_eq!(answer["ids"][0]["id"], "abcdef07");

    let fetch = || async {
        let answer = reqwest::get(format!("{url}/buildid/abcdef07/debuginfo")).await.unwrap();
        answer.bytes().await.unwrap()
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    assert!(runtime.block_on(fetch()) == std::fs::read(&program).unwrap());

    let (status, said, error) = upload(&[&text(&program), &text(&tree.join("notes.txt"))]);
    assert_eq!(status, Some(1), "{said}{error}");
    assert!(said.contains("abcdef07 (debuginfo, executable)"), "{said}");
    assert!(error.contains("notes.txt") && error.contains("expected an ELF, PE or Mach-O file"), "{error}");
    for repository in ["team", "loose/..", "loose/a:1", "looser"] {
        let (status, _, error) = upload(&["--repository", repository, &text(&program)]);
        assert!(status == Some(2) && error.contains("expected loose, or a name below it"), "{repository}: {error}");
    }
    let (status, ..) = upload(&[&text(&at("nowhere"))]);
    assert_eq!(status, Some(2));
    assert!(run("mkfifo", &[&text(&at("pipe"))]).status.success());
    let (status, _, error) = upload(&[&text(&at("pipe"))]);
    assert!(status == Some(2) && error.contains("expected a regular file"), "{error}");
}

/// reqwest would make a GET of it, and the list of files that is there would be taken for "was there already".
#[test]
fn a_server_that_leads_elsewhere_is_told_with_the_place_and_has_taken_nothing() {
    use std::io::{Read as _, Write as _};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.sym");
    std::fs::write(&file, "MODULE Linux x86_64 7C2E1D6F5B4A39281706F5E4D3C2B1A00 app\n").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = Config::new(folder.path().join("data"), ([127, 0, 0, 1], 0).into());
    let server = runtime.block_on(Server::bind(config)).unwrap();
    let real = format!("http://{}", server.local_addr());
    let _serving = runtime.spawn(server.run(std::future::pending::<()>()));
    for status in ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let front = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", front.local_addr().unwrap());
        let to = format!("{real}/api/v1/symbols");
        std::thread::spawn(move || {
            for mut stream in front.incoming().flatten() {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head);
                let head = format!("HTTP/1.1 {status}\r\nLocation: {to}?x=y\r\nContent-Length: 0\r\n\r\n");
                let _ = stream.write_all(head.as_bytes());
            }
        });
        let output = run(env!("CARGO_BIN_EXE_symseal"), &["upload", "--to", &url, &text(&file)]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{status}: {said}");
        assert!(said.contains(&format!("it leads to {real}/api/v1/symbols: name the server itself")), "{said}");
    }
}

/// The file below a dSYM too; what else is in it is left where it is.
#[test]
fn the_release_files_of_three_systems_are_uploaded_out_of_one_directory() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = folder.path().join("inputs");
    std::fs::create_dir(&inputs).unwrap();
    let Some(()) = three_systems::make(&inputs) else { return };
    let server = program::RunningServer::start(&folder.path().join("data"));
    let to = format!("http://{}", server.address);
    let uploaded = program::symseal(["upload", "--json", "--to", &to, &text(&inputs)]).ok();
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in uploaded.stdout.lines() {
        let answer: Value = serde_json::from_str(line).unwrap();
        assert_eq!(answer["status"], 201, "{answer}");
        let path = Path::new(answer["file"].as_str().unwrap()).strip_prefix(&inputs).unwrap();
        let of_ids = answer["ids"].as_array().unwrap().iter().flat_map(|id| id["files"].as_array().unwrap());
        let found = of_ids.map(|kind| kind.as_str().unwrap().to_owned()).collect();
        kinds.insert(text(path), found);
    }
    let expected = [
        ("app", "executable"),
        ("app.debug", "debuginfo"),
        ("app.dll", "executable"),
        ("app.dylib", "executable"),
        ("app.dylib.dSYM/Contents/Resources/DWARF/app.dylib", "debuginfo"),
        ("app.pdb", "debuginfo"),
    ];
    assert_eq!(kinds.keys().map(String::as_str).collect::<Vec<_>>(), expected.map(|(path, _)| path));
    for (path, kind) in expected {
        assert!(kinds[path].iter().any(|found| found == kind), "{path}: {:?}", kinds[path]);
    }
    // A second run changes nothing.
    let again = program::symseal(["upload", "--json", "--to", &to, &text(&inputs)]).ok();
    assert_eq!(
        again.stdout.lines().filter(|line| line.contains("\"status\":200")).count(),
        expected.len(),
        "{}",
        again.stdout
    );
}

/// An assembly of .NET and its portable PDB, as a wheel ships them, under the keys that debuggers of .NET ask for. Ids as llvm-readobj reads them.
#[test]
fn an_assembly_and_its_portable_pdb_are_found_by_the_keys_of_the_symbol_protocols() {
    let (Some(unzip), Some(readobj)) = (program::tool("unzip"), program::tool("llvm-readobj-19")) else { return };
    let Some(wheel) = downloads::CLR_LOADER.file() else { return };
    let folder = tempfile::tempdir().unwrap();
    let tree = "clr_loader/ffi/dlls/amd64";
    let pattern = format!("{tree}/*");
    assert!(
        Command::new(unzip).arg("-q").arg(wheel).arg(pattern).arg("-d").arg(folder.path()).status().unwrap().success()
    );
    let tree = folder.path().join(tree);
    let (assembly, pdb) = (tree.join("ClrLoader.dll"), tree.join("ClrLoader.pdb"));
    let told =
        Command::new(readobj).args(["--file-headers", "--coff-debug-directory"]).arg(&assembly).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let field = |name: &str| {
        let line = told.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": ")).unwrap();
        line.trim_matches(['{', '}']).to_owned()
    };
    let stamp = field("TimeDateStamp").rsplit("(0x").next().unwrap().trim_end_matches(')').to_owned();
    let size: u32 = field("SizeOfImage").parse().unwrap();
    let guid = field("PDBGUID").replace('-', "").to_ascii_lowercase();

    let server = program::RunningServer::start(&folder.path().join("data"));
    let to = format!("http://{}", server.address);
    program::symseal(["upload", "--to", &to, &text(&tree)]).ok();
    let get = |path: &str| {
        let output = run("curl", &["-s", "-w", "%{http_code}", &format!("{to}/symbols/{path}")]);
        assert!(output.status.success(), "{path}");
        let (body, status) = output.stdout.split_at(output.stdout.len() - 3);
        (String::from_utf8_lossy(status).into_owned(), body.to_vec())
    };
    // A portable PDB has no age: eight letters f stand where it would. (SSQP key conventions)
    let portable = format!("clrloader.pdb/{guid}ffffffff/clrloader.pdb");
    let executable = format!("clrloader.dll/{}{size:x}/clrloader.dll", stamp.to_ascii_uppercase());
    for (key, file) in [(&portable, &pdb), (&executable, &assembly)] {
        for key in [key.clone(), key.to_ascii_lowercase(), key.replace("clrloader", "ClrLoader")] {
            let (status, body) = get(&key);
            assert!(status == "200" && body == std::fs::read(file).unwrap(), "{key}: {status}");
        }
    }
    // As a PDB of Windows it would have this key, and there is none.
    assert_eq!(get(&format!("clrloader.pdb/{guid}1/clrloader.pdb")).0, "404");
}
