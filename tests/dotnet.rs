//! Stacks of a .NET program: methods that its runtime compiled, named by its perf map and walked by their frame pointers; methods of the framework that were compiled ahead
//! of time, by the rules of their images; the runtime's own code; the C library. The program tells its stack itself (`Environment.StackTrace`).
//!
//! The SDK has 113 MB: `tests/certify dotnet` sets `SYMSEAL_DOTNET` for it.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::downloads::{DOTNET_SDK, OPENSSL};
use crate::program::{required, run, symseal, tool};

/// What of the SDK is unpacked, relative to its package's folder.
const PARTS: [&str; 4] = ["dotnet", "host", "shared/Microsoft.NETCore.App", "sdk/3.1.102/Roslyn/bincore"];
const FRAMEWORK: &str = "shared/Microsoft.NETCore.App/3.1.2";
const COMPILER: &str = "sdk/3.1.102/Roslyn/bincore/csc.dll";
const REFERENCES: [&str; 9] = [
    "System.Private.CoreLib",
    "System.Collections",
    "System.Console",
    "System.Linq",
    "System.Runtime",
    "System.Runtime.Extensions",
    "System.Runtime.InteropServices",
    "System.Threading.Tasks",
    "System.Threading.Thread",
];
/// The runtime compiles each method when it is called first; with this, those of the framework too.
const NOTHING_AHEAD: (&str, &str) = ("COMPlus_ReadyToRun", "0");

/// The SDK and the compiled program; a folder of its own.
struct Scenes {
    folder: tempfile::TempDir,
}

/// A scene that waits, and what it told.
struct Waiting {
    child: Child,
    thread: u64,
    /// Its methods, innermost first, as the runtime writes them.
    told: Vec<String>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for name in ["perf", "perfinfo"] {
            let _ = std::fs::remove_file(format!("/tmp/{name}-{}.map", self.child.id()));
        }
    }
}

impl Scenes {
    fn new() -> Option<Self> {
        if std::env::var_os("SYMSEAL_DOTNET").is_none() {
            println!("SKIP .NET: tests/certify dotnet");
            return None;
        }
        let (sdk, openssl) = (DOTNET_SDK.file()?, OPENSSL.file()?);
        let folder = tempfile::tempdir().unwrap();
        let scenes = Self { folder };
        std::fs::create_dir(scenes.at("sdk")).unwrap();
        let parts = PARTS.map(|part| format!("package/{part}"));
        let unpacked = Command::new("tar").arg("-xzf").arg(sdk).arg("-C").arg(scenes.at("sdk")).args(parts).status();
        assert!(unpacked.unwrap().success());
        // npm keeps no permissions.
        assert!(Command::new("chmod").arg("+x").arg(scenes.sdk("dotnet")).status().unwrap().success());
        // The compiler hashes what it refers to, with an OpenSSL of its own time.
        let unzip = tool("unzip")?;
        let libraries = scenes.at("openssl");
        let mut unzip = Command::new(unzip);
        unzip.args(["-q", "-j"]).arg(openssl).args(["*.libs/lib*", "-d"]).arg(&libraries);
        assert!(unzip.status().unwrap().success());
        for library in std::fs::read_dir(&libraries).unwrap().flatten() {
            let name = library.file_name().into_string().unwrap();
            if name.starts_with("libssl-") {
                std::os::unix::fs::symlink(name, libraries.join("libssl.so.1.1")).unwrap();
            }
        }
        scenes.compile(&libraries);
        Some(scenes)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sdk(&self, name: &str) -> PathBuf {
        self.at("sdk").join("package").join(name)
    }

    fn dotnet(&self) -> Command {
        let mut dotnet = Command::new(self.sdk("dotnet"));
        let settings =
            [("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1"), ("DOTNET_CLI_TELEMETRY_OPTOUT", "1"), ("LC_ALL", "C")];
        dotnet.arg("exec").envs(settings).env("HOME", self.folder.path());
        dotnet
    }

    fn compile(&self, libraries: &Path) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dotnet/Scene.cs");
        let mut compiler = self.dotnet();
        compiler.env("LD_LIBRARY_PATH", libraries).arg(self.sdk(COMPILER)).args(["-nologo", "-optimize"]);
        compiler.arg(format!("-out:{}", self.at("Scene.dll").display()));
        for reference in REFERENCES {
            compiler.arg(format!("-r:{}", self.sdk(FRAMEWORK).join(format!("{reference}.dll")).display()));
        }
        let ran = compiler.arg(source).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{text}");
        let framework = r#"{"runtimeOptions":{"framework":{"name":"Microsoft.NETCore.App","version":"3.1.2"}}}"#;
        std::fs::write(self.at("Scene.runtimeconfig.json"), framework).unwrap();
    }

    fn start(&self, scene: &str, settings: &[(&str, &str)]) -> Waiting {
        let mut dotnet = self.dotnet();
        dotnet.env("COMPlus_PerfMapEnabled", "1").envs(settings.iter().copied()).arg(self.at("Scene.dll")).arg(scene);
        let mut child = dotnet.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        let first = lines.next().expect("a thread");
        let thread = first.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("its number");
        let told = lines.take_while(|line| line != "end").map(|line| line.trim().to_owned()).collect();
        let waiting = Waiting { child, thread, told };
        waiting.until_asleep();
        waiting
    }
}

impl Waiting {
    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Until the thread waits in its `read`, behind what it wrote.
    fn until_asleep(&self) {
        for _ in 0..1000 {
            let call = std::fs::read_to_string(format!("/proc/{}/task/{}/syscall", self.pid(), self.thread)).unwrap();
            // Number 0, of file 0.
            if call.starts_with("0 0x0 ") {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("it does not wait");
    }

    /// The thread's frames, captured and resolved with the files on this machine.
    fn frames(&self, scenes: &Scenes) -> Vec<Value> {
        let at = |name: &str| scenes.at(name).display().to_string();
        run("trace-capture", ["--pid", &self.pid(), "--output", &at("trace")]).ok();
        let ran = run("trace-resolve", ["--bundle", &at("bundle"), &at("trace"), "--local-files", "--json"]).ok();
        let lines = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["thread"] == self.thread && line["ip"].is_string()).collect()
    }

    /// The thread's instruction pointers as eu-stack has them.
    fn by_eu_stack(&self) -> Option<Vec<String>> {
        let told = Command::new(tool("eu-stack")?).args(["-p", &self.pid()]).output().unwrap();
        let text = String::from_utf8(told.stdout).unwrap();
        let own = text.lines().skip_while(|line| *line != format!("TID {}:", self.thread)).skip(1);
        let address = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?.strip_prefix("0x")?, 16).ok();
        Some(own.map_while(address).map(|address| format!("{address:#x}")).collect())
    }
}

/// What a frame is.
#[derive(Debug, PartialEq, Eq)]
enum Code {
    /// A method that the runtime compiled, in the form of [`told_name`].
    Method(String),
    /// A method of an image, which was compiled ahead of time and has no name.
    Ahead,
    /// What the runtime made between methods and native code.
    Stub,
    Native,
}

/// `int32 [Scene] Scene+Inner::Runs(class [System]Type)[Optimized]`, as the perf map has it.
fn code_of(frame: &Value) -> Code {
    let module = frame["module"].as_str();
    if module.is_some_and(|module| module.ends_with(".dll")) {
        return Code::Ahead;
    }
    let Some(name) = frame["frames"][0]["function"].as_str().filter(|_| frame["resolver"] == "jit-map") else {
        return Code::Native;
    };
    if name.contains("IL_STUB") {
        return Code::Stub;
    }
    let qualified = name.split_once('(').expect("parameters").0;
    // The result's type may have blanks and brackets; so may the arguments of a generic type, which are no part of the name.
    let mut depth = 0;
    let start = qualified.char_indices().rev().find(|(_, letter)| {
        depth += i32::from(*letter == ']') - i32::from(*letter == '[');
        *letter == ' ' && depth == 0
    });
    let own = qualified.get(start.map_or(0, |(at, _)| at + 1)..).unwrap_or_default();
    let mut plain = String::new();
    for letter in own.chars() {
        depth += i32::from(letter == '[');
        if depth == 0 {
            plain.push(letter);
        }
        depth -= i32::from(letter == ']');
    }
    Code::Method(of_source(&plain.replace("::", ".").replace('+', ".")))
}

/// The function of the source: of an asynchronous one the runtime tells that, and the perf map what the compiler made of it.
fn of_source(name: &str) -> String {
    let made = name.strip_suffix(".MoveNext").and_then(|it| it.rsplit_once(".<")).and_then(|(place, rest)| {
        rest.split_once('>').filter(|(_, rest)| rest.starts_with("d__")).map(|(name, _)| format!("{place}.{name}"))
    });
    made.unwrap_or_else(|| name.to_owned())
}

/// `at Place`1.Goes[U](T one, U other, Action then)`, as the runtime has it, without what is no name.
fn told_name(line: &str) -> String {
    let name = line.strip_prefix("at ").and_then(|line| line.split_once('(')).expect("a method").0;
    name.split_once('[').map_or(name, |(name, _)| name).to_owned()
}

/// Holds a scene's stack to what the runtime itself told of it, from the innermost method to the last.
#[track_caller]
fn check(scenes: &Scenes, scene: &str, settings: &[(&str, &str)], last: &str) -> (Waiting, Vec<Value>) {
    let waiting = scenes.start(scene, settings);
    let frames = waiting.frames(scenes);
    let text = || frames.iter().map(|frame| format!("{frame}\n")).collect::<String>();
    let end = frames.last().expect("frames");
    assert_eq!((&end["stop"], &end["complete"]), (&Value::from("end-of-stack"), &Value::from(true)), "{}", text());
    let found: Vec<(Code, &Value)> = frames.iter().map(|frame| (code_of(frame), frame)).collect();
    let is_method = |code: &Code| matches!(code, Code::Method(_) | Code::Ahead);
    let methods: Vec<&(Code, &Value)> = found.iter().filter(|(code, _)| is_method(code)).collect();
    // The innermost one is that which told. Calls of native code are listed twice, and are a stub on the stack.
    let told: Vec<String> = waiting.told.iter().skip(1).map(|line| told_name(line)).collect();
    let told: Vec<&String> = told.iter().filter(|name| !name.starts_with("Native.")).collect();
    assert_eq!(methods.len(), told.len(), "{told:#?}\n{}", text());
    for ((code, frame), told) in methods.iter().zip(told) {
        match code {
            Code::Method(name) => assert_eq!(name, told, "{frame}"),
            _ => assert!(told.starts_with("System."), "{told} {frame}"),
        }
    }
    // What a rule led from is said so; frame pointers are believed in what the runtime compiled alone.
    for (caller, (code, callee)) in found.iter().skip(1).zip(&found) {
        let method = caller.1["unwind"].as_str().unwrap();
        match code {
            Code::Method(_) | Code::Stub => assert_eq!(method, "frame-pointer", "{callee}"),
            Code::Ahead => assert_eq!(method, "pdata", "{callee}"),
            Code::Native => assert!(["cfi-eh-frame", "plt"].contains(&method), "{callee} {caller:?}"),
        }
    }
    let ahead = found.iter().filter(|(code, _)| *code == Code::Ahead).count();
    println!(
        ".NET, {scene}: {} frames, {} methods, of these {ahead} compiled ahead of time",
        frames.len(),
        methods.len()
    );
    let functions = frames.iter().flat_map(|frame| frame["frames"].as_array().unwrap());
    let functions: Vec<&str> = functions.filter_map(|frame| frame["function"].as_str()).collect();
    assert!(functions.iter().any(|name| name.contains(last)), "{last}: {functions:#?}");
    (waiting, frames)
}

fn addresses(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["ip"].as_str().unwrap()).collect()
}

#[test]
fn stacks_of_dotnet_are_those_that_its_runtime_tells() {
    let Some(scenes) = Scenes::new() else {
        assert!(!required("dotnet"), "dotnet is required");
        return;
    };
    let at = |name: &str| scenes.at(name).display().to_string();
    let any = tool("true").unwrap();
    symseal(["bundle", "build", any.to_str().unwrap(), "--name", "any", "--version", "1", "--output", &at("bundle")])
        .ok();
    // Where each method has a frame pointer eu-stack finds the same, the C library's sorting between two methods included.
    for scene in ["callback", "linq", "library", "finally", "catch"] {
        let (waiting, frames) = check(&scenes, scene, &[], "RunMain");
        if let Some(expected) = waiting.by_eu_stack() {
            assert_eq!(addresses(&frames), expected, "{scene}");
        }
    }
    let (waiting, frames) = check(&scenes, "thread", &[], "start_thread");
    if let Some(expected) = waiting.by_eu_stack() {
        assert_eq!(addresses(&frames), expected);
    }
    // The last method of a thread of the pool has none: its caller, which eu-stack passes over, is found by the rules of the image.
    let (waiting, frames) = check(&scenes, "async", &[], "CallDescrWorkerInternal");
    if let Some(expected) = waiting.by_eu_stack() {
        let by_frame_pointers = |frame: &&Value| frame["frames"][0]["function"] != "CallDescrWorkerInternal";
        let others: Vec<Value> = frames.iter().filter(by_frame_pointers).cloned().collect();
        assert_eq!(addresses(&others), expected);
    }
    // Each of them is that of the same scene in which the runtime compiled, and names, every method.
    for (scene, last) in [("library", "RunMain"), ("async", "start_thread"), ("thread", "start_thread")] {
        let (_, frames) = check(&scenes, scene, &[NOTHING_AHEAD], last);
        assert!(!frames.iter().any(|frame| code_of(frame) == Code::Ahead), "{frames:#?}");
    }
}
