//! Other people's tools against our server: oras, debuginfod-find and gdb.

use crate::program;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use symseal_builder::{Options, SealOptions, SymbolBundleBuilder, seal_bundle};
use symseal_bundle::{Bundle, Digest, FileRole, LayoutDir};
use symseal_registry::Reference;
use symseal_sealer::{ArtifactKey, LogKey, TileLog};
use symseal_server::{Config, Server};

const SOURCE: &str = "
int innermost_of_the_test(int x) { return x * 3; }
int called_by_main(int x) { return innermost_of_the_test(x) + 1; }
int main(int argc, char **argv) { (void)argv; return called_by_main(argc); }
";

/// A server on a thread of its own, for as long as the test lives.
fn serve(data: PathBuf) -> SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let server = Server::bind(Config::new(data, ([127, 0, 0, 1], 0).into())).await.expect("a server");
            tell.send(server.local_addr()).expect("the test waits");
            server.run(std::future::pending::<()>()).await.expect("it runs");
        });
    });
    told.recv().expect("the server listens")
}

/// A released program: stripped binary and separate debug file, sealed, published as `team/app:1.0`.
struct Release {
    root: tempfile::TempDir,
    address: SocketAddr,
    digest: Digest,
    layout: LayoutDir,
    stripped: PathBuf,
    debug: PathBuf,
    build_id: String,
}

impl Release {
    /// `None`, with a word about it, when there is no compiler.
    fn publish() -> Option<Self> {
        let root = tempfile::tempdir().expect("tempdir");
        let inputs = root.path().join("inputs");
        std::fs::create_dir(&inputs).expect("directory");
        let whole = program::compile_c(&inputs, "app", SOURCE, &["-g", "-O0", "-Wl,--build-id"])?;
        let objcopy = program::tool("objcopy")?;
        let (stripped, debug) = (inputs.join("stripped/app"), inputs.join("app.debug"));
        std::fs::create_dir(inputs.join("stripped")).expect("directory");
        let copy = |option: &str, to: &Path| run(Command::new(&objcopy).arg(option).arg(&whole).arg(to));
        copy("--only-keep-debug", &debug);
        copy("--strip-all", &stripped);
        std::fs::remove_file(&whole).expect("removed");

        let layout = LayoutDir::create(root.path().join("layout")).expect("a layout");
        let release = Options { name: "app".into(), version: "1.0".into(), ..Options::default() };
        let built =
            SymbolBundleBuilder::new(release).add_path(&stripped).add_path(&debug).build(&layout).expect("a bundle");
        let build_id = built.index.linux.keys().next().expect("a module").clone();
        let key = ArtifactKey::generate().expect("a key");
        let origin = "log.example".parse().expect("an origin");
        let log_key = LogKey::generate().expect("a key");
        let mut log =
            TileLog::create(&root.path().join("log"), origin, log_key, &root.path().join("last-seen")).expect("a log");
        seal_bundle(&layout, &built.digest, &key, &mut log, &SealOptions::default()).expect("a seal");

        let address = serve(root.path().join("data"));
        let reference = Reference::parse(&format!("{address}/team/app:1.0")).expect("a reference");
        let options = symseal_registry::Options::default();
        block_on(symseal_registry::push(&layout, &built.digest, &reference, &options)).expect("pushed");
        Some(Self { root, address, digest: built.digest, layout, stripped, debug, build_id })
    }

    fn reference(&self) -> String {
        format!("{}/team/app:1.0", self.address)
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(future)
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    assert!(
        output.status.success(),
        "{command:?}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

#[test]
fn oras_pulls_every_file_to_its_title() {
    let Some(oras) = program::peer("oras") else { return };
    let Some(release) = Release::publish() else { return };
    let target = release.folder("pulled");
    run(Command::new(oras).args(["pull", "--plain-http", &release.reference(), "--output"]).arg(&target));
    let bundle = Bundle::open(release.layout.clone(), Some(&release.digest)).expect("the bundle");
    let mut files = 0;
    for file in bundle.index().files() {
        let bytes = std::fs::read(target.join(&file.path)).unwrap_or_else(|error| panic!("{}: {error}", file.path));
        assert_eq!(Digest::of(&bytes), file.sha256, "{}", file.path);
        files += 1;
    }
    assert!(files >= 5, "{files} files");
    assert!(target.join("symbol_index.json").is_file());
    let id = &release.build_id;
    assert!(target.join(format!(".build-id/{}/{}.debug", &id[..2], &id[2..])).is_file());
}

#[test]
fn oras_copies_the_bundle_with_its_seal_to_a_layout_and_back() {
    let Some(oras) = program::peer("oras") else { return };
    let Some(release) = Release::publish() else { return };
    let mirror = release.folder("mirror");
    let mirror_reference = format!("{}:1.0", mirror.display());
    let copy = |arguments: &[&str]| run(Command::new(&oras).args(["cp", "-r"]).args(arguments));
    copy(&["--from-plain-http", &release.reference(), "--to-oci-layout", &mirror_reference]);
    let mirrored = LayoutDir::open(&mirror).expect("a layout");
    let bundle = Bundle::open(mirrored, Some(&release.digest)).expect("the same bundle");
    assert_eq!(bundle.read_seals().expect("readable").len(), 1);

    let elsewhere = format!("{}/mirror/app:1.0", release.address);
    copy(&["--from-oci-layout", &mirror_reference, "--to-plain-http", &elsewhere]);
    let target = LayoutDir::create(release.folder("target")).expect("a layout");
    let reference = Reference::parse(&elsewhere).expect("a reference");
    let options = symseal_registry::Options::default();
    let pulled = block_on(symseal_registry::pull(&reference, &target, &options)).expect("pulled").digest;
    assert_eq!(pulled, release.digest);
    let seals = Bundle::open(target, Some(&pulled)).expect("the bundle").read_seals().expect("readable");
    assert_eq!(seals.len(), 1);
}

#[test]
fn oras_discovers_the_seal() {
    let Some(oras) = program::peer("oras") else { return };
    let Some(release) = Release::publish() else { return };
    let arguments = ["discover", "--plain-http", "--format", "json", &release.reference()];
    let found = String::from_utf8(run(Command::new(oras).args(arguments)).stdout).expect("text");
    let seal = release.layout.referrers(&release.digest).expect("listed").remove(0);
    assert!(found.contains("application/vnd.dev.sigstore.bundle.v0.3+json"), "{found}");
    assert!(found.contains(&seal.digest.to_string()), "{found}");
}

#[test]
fn the_record_of_the_bundle_names_its_signer_and_log_entry() {
    let Some(release) = Release::publish() else { return };
    let url = format!("{}/api/v1/bundles/{}", release.url(), release.digest);
    let text = block_on(async { reqwest::get(url).await.expect("an answer").text().await.expect("text") });
    let record: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(record["name"], "app");
    assert_eq!(record["version"], "1.0");
    assert_eq!(record["seal"]["rekor_tile_ref"], "log.example/tile/entries/000#0");
    assert!(record["seal"]["signer"].as_str().is_some_and(|signer| signer.len() == 44), "{}", record["seal"]);
    assert!(record["seal"]["dsse_ref"].as_str().is_some_and(|dsse| dsse.starts_with("dsse:")));
}

#[test]
fn debuginfod_find_gets_the_files_byte_by_byte() {
    let Some(find) = program::tool("debuginfod-find") else { return };
    let Some(release) = Release::publish() else { return };
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(&find);
        command.env("DEBUGINFOD_URLS", release.url()).env("DEBUGINFOD_CACHE_PATH", release.folder("cache"));
        let output = run(command.args(arguments));
        let path = String::from_utf8(output.stdout).expect("a path");
        std::fs::read(path.trim()).expect("the file that it names")
    };
    assert!(ask(&["debuginfo", &release.build_id]) == std::fs::read(&release.debug).expect("read"));
    assert!(ask(&["executable", &release.build_id]) == std::fs::read(&release.stripped).expect("read"));
    // A path is a build-id too: the client reads it from the file.
    let stripped = release.stripped.display().to_string();
    assert!(ask(&["debuginfo", &stripped]) == std::fs::read(&release.debug).expect("read"));

    let unknown = Command::new(&find)
        .env("DEBUGINFOD_URLS", release.url())
        .env("DEBUGINFOD_CACHE_PATH", release.folder("cache"))
        .args(["debuginfo", "00112233445566778899aabbccddeeff00112233"])
        .output()
        .expect("the program starts");
    assert!(!unknown.status.success());
}

#[test]
fn gdb_names_the_functions_of_a_stripped_program() {
    let Some(gdb) = program::tool("gdb") else { return };
    let Some(release) = Release::publish() else { return };
    let output = run(Command::new(gdb)
        .env("DEBUGINFOD_URLS", release.url())
        .env("DEBUGINFOD_CACHE_PATH", release.folder("cache"))
        .env("HOME", release.root.path())
        .args(["-nx", "-batch", "-iex", "set auto-load no", "-iex", "set debuginfod enabled on"])
        .args(["-ex", "info line innermost_of_the_test", "-ex", "info functions called_by"])
        .arg(&release.stripped));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("app.c") && text.contains("innermost_of_the_test"), "{text}");
    assert!(text.contains("int called_by_main(int);"), "{text}");

    // Without the server there is nothing to name.
    let alone = Command::new("gdb")
        .env_remove("DEBUGINFOD_URLS")
        .args(["-nx", "-batch", "-iex", "set auto-load no", "-ex", "info line innermost_of_the_test"])
        .arg(&release.stripped)
        .output()
        .expect("the program starts");
    assert!(!String::from_utf8_lossy(&alone.stdout).contains("app.c"));
}

#[test]
fn the_settings_that_setup_prints_lead_gdb_to_the_server_and_to_a_pulled_directory() {
    let Some(gdb) = program::tool("gdb") else { return };
    let Some(release) = Release::publish() else { return };
    let pulled = release.folder("pulled");
    let debug = pulled.join(".build-id").join(&release.build_id[..2]);
    std::fs::create_dir_all(&debug).expect("a folder");
    std::fs::copy(&release.debug, debug.join(format!("{}.debug", &release.build_id[2..]))).expect("a copy");
    let pulled = pulled.display().to_string();
    for (at, place) in [["--server", &release.url()], ["--directory", &pulled]].into_iter().enumerate() {
        let settings = run(Command::new(env!("CARGO_BIN_EXE_symseal")).args(["setup", "gdb"]).args(place));
        let home = release.folder(&format!("home-{at}"));
        std::fs::create_dir_all(&home).expect("a home");
        std::fs::write(home.join(".gdbinit"), settings.stdout).expect("the settings");
        let output = run(Command::new(&gdb)
            .env_remove("DEBUGINFOD_URLS")
            .env_remove("XDG_CONFIG_HOME")
            .env("DEBUGINFOD_CACHE_PATH", release.folder("cache-of-setup"))
            .env("HOME", home)
            .args(["-batch", "-ex", "info line innermost_of_the_test"])
            .arg(&release.stripped));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("app.c"), "{place:?}: {text}");
    }
    // What `symseal bundle pull` leaves has no such files.
    let layout = release.folder("layout");
    std::fs::create_dir_all(&layout).expect("a folder");
    std::fs::write(layout.join("oci-layout"), "{}").expect("a layout");
    program::symseal(["setup", "gdb", "--directory", &layout.display().to_string()])
        .refused(2, &["OCI layout", "symseal bundle export"]);
}

#[test]
fn the_pulled_files_are_those_that_a_debug_directory_needs() {
    let Some(release) = Release::publish() else { return };
    let bundle = Bundle::open(release.layout.clone(), Some(&release.digest)).expect("the bundle");
    let module = bundle.index().linux.get(&release.build_id).expect("the module");
    for role in [FileRole::Debuginfo, FileRole::Executable] {
        let file = module.file(role).expect("the file");
        let url = format!("{}/v2/team/app/blobs/{}", release.url(), file.sha256);
        let length = block_on(async {
            let answer = reqwest::Client::new().head(url).send().await.expect("an answer");
            answer.headers()["content-length"].to_str().expect("text").to_owned()
        });
        assert_eq!(length, file.size.to_string());
    }
}
