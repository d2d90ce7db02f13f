//! What app stores and package managers ship, and kernel modules: each by its own name and with the members that it has.

use std::path::{Path, PathBuf};

use crate::inputs::{SOURCE, build, output, report, run, tool};
use symseal_builder::BuildReport;
use symseal_bundle::{Digest, LayoutDir};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn digest(path: &Path) -> Digest {
    let dir = tempfile::tempdir().unwrap();
    build(&[path.to_owned()], &LayoutDir::create(dir.path()).unwrap()).unwrap().digest
}

/// Packs everything in `folder` into a zip of that name, as the platform's own packers do: deflated, the directory at the end.
fn zip(folder: &Path, name: &str) -> Option<PathBuf> {
    let python = tool("python3")?;
    let packed = folder.with_file_name(name);
    let script = "
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[2], 'w', zipfile.ZIP_DEFLATED) as packed:
    for folder, _, files in sorted(os.walk(sys.argv[1])):
        for name in sorted(files):
            path = os.path.join(folder, name)
            packed.write(path, os.path.relpath(path, sys.argv[1]))
";
    run(&python, &["-c", script, text(folder), text(&packed)]);
    Some(packed)
}

fn write(folder: &Path, name: &str, content: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// The package gives the bundle that its files give in a directory, and says where in it they lie; what else is in it is counted.
#[track_caller]
fn check(folder: &Path, packed: &Path, others: u64) -> BuildReport {
    assert_eq!(digest(packed), digest(folder));
    let found = report(&[packed.to_owned()]);
    assert_eq!((found.inputs.archives.len(), found.inputs.skipped.get("no release file")), (1, Some(&others)));
    let name = packed.file_name().unwrap().to_str().unwrap();
    for module in &found.modules {
        assert!(module.binary.as_ref().unwrap().contains(&format!("{name}!/")), "{:?}", module.binary);
    }
    found
}

#[test]
fn a_nuget_package_is_read_with_its_native_libraries_and_their_program_databases() {
    let (Some(clang), Some(link)) = (tool("clang"), tool("lld-link")) else { return };
    let Some(readobj) = tool("llvm-readobj") else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("package");
    let native = "runtimes/win-x64/native";
    write(&folder, "Native.nuspec", "<package><metadata><id>Native</id><version>1.0.0</version></metadata></package>");
    write(&folder, "[Content_Types].xml", "<Types/>");
    write(&folder, "_rels/.rels", "<Relationships/>");
    write(&folder, &format!("{native}/native.c"), SOURCE);
    let at = |name: &str| folder.join(native).join(name);
    let (source, object) = (at("native.c"), dir.path().join("native.obj"));
    run(&clang, &["--target=x86_64-pc-windows-msvc", "-g", "-gcodeview", "-c", text(&source), "-o", text(&object)]);
    let out = [format!("/out:{}", text(&at("native.dll"))), format!("/pdb:{}", text(&at("native.pdb")))];
    run(
        &link,
        &["/dll", "/debug", "/noentry", "/nodefaultlib", "/pdbaltpath:native.pdb", text(&object)]
            .iter()
            .copied()
            .chain(out.iter().map(String::as_str))
            .collect::<Vec<_>>(),
    );
    std::fs::remove_file(source).unwrap();
    let Some(packed) = zip(&folder, "Native.1.0.0.nupkg") else { return };
    let found = check(&folder, &packed, 3);
    let [module] = found.modules.as_slice() else { panic!("{:?}", found.modules) };
    assert_eq!((module.platform, module.arch, module.name.as_str()), ("windows", "x86_64", "native.dll"));
    assert_eq!(module.paired.len(), 1);
    assert!(module.debug_file.as_ref().unwrap().ends_with("Native.1.0.0.nupkg!/runtimes/win-x64/native/native.pdb"));
    assert!(module.functions["pdb"] > 0, "{:?}", module.functions);
    let told = output(&readobj, &["--coff-debug-directory", text(&at("native.dll"))]);
    assert!(told.contains("PDBFileName: native.pdb"), "{told}");
}

#[test]
fn an_android_package_is_read_with_the_libraries_of_each_architecture() {
    let (Some(clang), Some(lld), Some(readelf)) = (tool("clang"), tool("ld.lld"), tool("eu-readelf")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("package");
    write(&folder, "AndroidManifest.xml", "<manifest/>");
    write(&folder, "classes.dex", "dex\n035\0");
    write(&folder, "META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n");
    let source = dir.path().join("native.c");
    std::fs::write(&source, SOURCE).unwrap();
    let mut ids = Vec::new();
    for (abi, target) in [("arm64-v8a", "aarch64-linux-android21"), ("x86_64", "x86_64-linux-android21")] {
        let library = folder.join("lib").join(abi).join("libnative.so");
        std::fs::create_dir_all(library.parent().unwrap()).unwrap();
        let object = dir.path().join("native.o");
        let target = format!("--target={target}");
        run(&clang, &[&target, "-g", "-fPIC", "-c", text(&source), "-o", text(&object)]);
        run(&lld, &["-shared", "--build-id=sha1", text(&object), "-o", text(&library)]);
        let told = output(&readelf, &["-n", text(&library)]);
        let id = told.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
        ids.push((id, if abi == "x86_64" { "x86_64" } else { "aarch64" }));
    }
    let Some(packed) = zip(&folder, "app-release.apk") else { return };
    let found = check(&folder, &packed, 3);
    ids.sort();
    let told: Vec<(String, &str)> =
        found.modules.iter().map(|module| (module.debug_id.to_string(), module.arch)).collect();
    assert_eq!(told, ids);
    assert!(found.modules.iter().all(|module| module.functions["dwarf"] == 2), "{:?}", found.modules);
}

#[test]
fn an_app_for_ios_is_read_with_its_frameworks() {
    let Some(clang) = tool("clang") else { return };
    let Some(lld) = ["ld64.lld-19", "ld64.lld"].iter().find_map(|name| tool(name)) else { return };
    let Some(dwarfdump) = tool("llvm-dwarfdump") else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("package");
    let app = folder.join("Payload/Notes.app");
    write(&app, "Info.plist", "<plist><dict/></plist>");
    write(&app, "PkgInfo", "APPL????");
    write(&app, "Frameworks/Core.framework/Info.plist", "<plist><dict/></plist>");
    let source = dir.path().join("main.c");
    std::fs::write(&source, SOURCE.replace("int main_like", "int main")).unwrap();
    let object = dir.path().join("main.o");
    run(&clang, &["--target=arm64-apple-ios15", "-g", "-c", text(&source), "-o", text(&object)]);
    let platform = ["-arch", "arm64", "-platform_version", "ios", "15.0", "15.0"];
    let mut ids = Vec::new();
    for (kind, name) in [("-dylib", "Frameworks/Core.framework/Core"), ("-execute", "Notes")] {
        let binary = app.join(name);
        let mut arguments = platform.to_vec();
        arguments.extend([kind, text(&object), "-o", text(&binary)]);
        if kind == "-execute" {
            arguments.extend(["-e", "_main"]);
        }
        run(&lld, &arguments);
        // `UUID: …-… (arm64) FILE`
        let told = output(&dwarfdump, &["--uuid", text(&binary)]);
        let id = told.split_whitespace().nth(1).unwrap().replace('-', "");
        ids.push(format!("uuid:{id}"));
    }
    let Some(packed) = zip(&folder, "Notes.ipa") else { return };
    let found = check(&folder, &packed, 3);
    ids.sort();
    let told: Vec<String> = found.modules.iter().map(|module| module.debug_id.to_string()).collect();
    assert_eq!(told, ids);
    for module in &found.modules {
        assert_eq!((module.platform, module.arch), ("macos", "aarch64"));
    }
    // Its debug information is where it was linked, and the report says so.
    assert_eq!(found.binaries_without_debug_files.len(), 2);
    assert!(found.binaries_without_debug_files.iter().all(|one| one.advice.contains("dsymutil")));
}

#[test]
fn a_kernel_module_is_the_same_whatever_it_is_packed_with() {
    let (Some(cc), Some(ld), Some(readelf)) = (tool("cc"), tool("ld"), tool("eu-readelf")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (source, object, module) = (dir.path().join("m.c"), dir.path().join("m.o"), dir.path().join("widget.ko"));
    let marked = format!(
        "{SOURCE}\n__attribute__((section(\".init.text\"))) int init_module(void) {{ return add(1, 2); }}\n\
         __attribute__((section(\".modinfo\"), used)) static const char license[] = \"license=GPL\";\n"
    );
    std::fs::write(&source, marked).unwrap();
    run(&cc, &["-g", "-O1", "-ffreestanding", "-fno-pic", "-c", text(&source), "-o", text(&object)]);
    run(&ld, &["-r", "--build-id=sha1", text(&object), "-o", text(&module)]);
    let told = output(&readelf, &["-n", text(&module)]);
    let id = told.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
    let expected = digest(&module);
    // As kernels are installed: CONFIG_MODULE_COMPRESS_XZ and _ZSTD.
    for (ending, packer) in [("xz", &["xz", "-k", "--check=crc32", "--lzma2=dict=1MiB"][..]), ("zst", &["zstd", "-q"])]
    {
        let Some(program) = tool(packer[0]) else { continue };
        let mut arguments = packer[1..].to_vec();
        arguments.push(text(&module));
        run(&program, &arguments);
        let packed = dir.path().join(format!("widget.ko.{ending}"));
        assert_eq!(digest(&packed), expected, "{}", packed.display());
        let found = report(std::slice::from_ref(&packed));
        let [one] = found.modules.as_slice() else { panic!("{:?}", found.modules) };
        assert_eq!((one.debug_id.to_string(), one.name.as_str(), one.platform), (id.clone(), "widget.ko", "linux"));
        assert_eq!(one.functions["dwarf"], 3, "{:?}", one.functions);
    }
    let found = report(std::slice::from_ref(&module));
    assert_eq!((found.modules[0].debug_id.to_string(), found.modules[0].name.as_str()), (id, "widget.ko"));
}
