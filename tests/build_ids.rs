//! The build-ids in a bundle's index are those that elfutils and binutils read from the files.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{RunningServer, compile_c, symseal, symseal_path, tool};

const SOURCE: &str = "int main(void) { return 0; }\n";

fn stdout(program: &Path, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(file).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `0+0x… ID@0x… FILE …`
fn by_elfutils(eu_unstrip: &Path, file: &Path) -> String {
    let text = stdout(eu_unstrip, &["-n", "-e"], file);
    let id = text.split_whitespace().nth(1).and_then(|word| word.split('@').next());
    id.expect("a build-id").to_owned()
}

/// `    Build ID: ID`
fn by_binutils(readelf: &Path, file: &Path) -> String {
    let text = stdout(readelf, &["-n"], file);
    text.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).expect("a build-id").to_owned()
}

#[test]
fn the_index_has_the_build_ids_that_other_tools_read() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut files: Vec<PathBuf> = vec![symseal_path().to_owned()];
    files.extend(
        ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
            .map(PathBuf::from)
            .into_iter()
            .filter(|path| path.exists()),
    );
    files.extend(["sha1", "md5", "0x0123456789abcdef"].iter().filter_map(|kind| {
        let name = kind.trim_start_matches("0x");
        compile_c(
            dir.path(),
            name,
            &SOURCE.replace('0', &name.len().to_string()),
            &["-g", &format!("-Wl,--build-id={kind}")],
        )
    }));
    let bundle = dir.path().join("bundle");
    let mut arguments = vec!["bundle".to_owned(), "build".to_owned()];
    arguments.extend(files.iter().map(|file| file.display().to_string()));
    arguments.extend(["--name", "n", "--version", "1", "--output"].map(str::to_owned));
    arguments.push(bundle.display().to_string());
    symseal(&arguments).ok();
    let index = symseal(["bundle", "inspect", bundle.to_str().expect("UTF-8"), "--json"]).ok().json();
    let modules = index["linux"].as_object().expect("modules");
    assert_eq!(modules.len(), files.len());
    for (name, read) in [("eu-unstrip", by_elfutils as fn(&Path, &Path) -> String), ("readelf", by_binutils)] {
        let Some(tool) = tool(name) else { continue };
        for file in &files {
            let id = read(&tool, file);
            assert!(
                modules.contains_key(&id),
                "{name} says {id} of {}, the index has {:?}",
                file.display(),
                modules.keys()
            );
        }
    }
}

#[test]
fn a_build_and_its_bundle_and_the_servers_page_say_alike_what_an_id_is_made_of_and_whose_code_has_lines() {
    let dir = tempfile::tempdir().expect("tempdir");
    let at = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let Some(_) = compile_c(dir.path(), "without_id", SOURCE, &["-g", "-Wl,--build-id=none"]) else { return };
    // Start-up code, as the path says, that calls what has no lines.
    let toolchain = dir.path().join("mingw-w64-crt");
    std::fs::create_dir(&toolchain).expect("directory");
    std::fs::write(toolchain.join("own.c"), "int own(int x) { return x * 3; }\n").expect("written");
    let Some(cc) = tool("cc") else { return };
    let own = at("own.o");
    let made = Command::new(cc).args(["-g0", "-c", &at("mingw-w64-crt/own.c"), "-o", &own]).status().expect("it runs");
    assert!(made.success());
    let source = "int own(int); int main(void) { return own(1); }\n";
    compile_c(&toolchain, "of_parts", source, &["-g", "-Wl,--build-id", &own]).expect("a program");

    let (bundle, inputs) = (at("bundle"), [at("without_id"), at("mingw-w64-crt/of_parts")]);
    let arguments = ["bundle", "build", &inputs[0], &inputs[1], "--name", "n", "--version", "1", "--output", &bundle];
    let built = symseal(arguments).ok().stdout;
    let inspected = symseal(["bundle", "inspect", &bundle]).ok().stdout;
    for told in [built, inspected] {
        let row = |name: &str| told.lines().find(|line| line.contains(name)).expect("a row").to_owned();
        assert!(row("without_id").contains(" (text hash)") && !row("without_id").contains("parts alone"), "{told}");
        assert!(
            row("of_parts").contains("full, lines of parts alone") && !row("of_parts").contains("(text hash)"),
            "{told}"
        );
    }
    let index = symseal(["bundle", "inspect", &bundle, "--json"]).ok().json();
    let modules = index["linux"].as_object().expect("modules").values();
    let lines_of: Vec<&serde_json::Value> = modules.filter_map(|module| module.get("lines_of")).collect();
    assert_eq!(lines_of, ["parts"]);

    let server = RunningServer::start(&dir.path().join("data"));
    symseal(["bundle", "push", &bundle, &format!("{}/n:1", server.address)]).ok();
    let layout = std::fs::read(dir.path().join("bundle/index.json")).expect("an index");
    let layout: serde_json::Value = serde_json::from_slice(&layout).expect("JSON");
    let page = page(&server, &format!("/bundles/{}", layout["manifests"][0]["digest"].as_str().expect("a digest")));
    assert_eq!(page.matches("<td>full, lines of parts alone</td>").count(), 1, "{page}");
}

/// What the server answers, with its head.
fn page(server: &RunningServer, path: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    text
}
