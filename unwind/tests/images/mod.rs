//! Images of Windows and macOS: built by clang and lld for a test, and read as the compiler's input.
#![allow(dead_code, reason = "each test uses its part")]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Architecture, ExportTarget, Object, ObjectSection, ObjectSymbol, SectionFlags, macho, pe};
use symseal_module::{DebugId, Svma};
use symseal_unwind::Arch;
use symseal_unwind::compile::{self, Compiled, Input};

/// A system and processor, and how programs for it are made.
pub(crate) struct Platform {
    pub(crate) name: &'static str,
    /// Compilers and what each of them compiles, with options for all of them.
    compilers: &'static [(&'static str, &'static str)],
    options: &'static [&'static str],
    /// The linker and its options but for input and output.
    linker: &'static [&'static str],
    /// How the linker is told the output; one that ends with a colon stands before it in the same argument.
    output: &'static str,
}

const CLANG: &[(&str, &str)] = &[("clang-19", "program.c"), ("clang++-19", "shapes.cpp")];

pub(crate) const WINDOWS_X64: Platform = Platform {
    name: "Windows x64, clang",
    compilers: CLANG,
    options: &["--target=x86_64-pc-windows-msvc"],
    linker: &["lld-link-19", "/nodefaultlib", "/entry:entry", "/subsystem:console", "/export:on_fault"],
    output: "/out:",
};

pub(crate) const WINDOWS_ARM64: Platform = Platform {
    name: "Windows arm64, clang",
    compilers: &[("clang-19", "program.c"), ("clang++-19", "shapes.cpp"), ("clang-19", "parts.S")],
    options: &["--target=aarch64-pc-windows-msvc"],
    linker: &["lld-link-19", "/nodefaultlib", "/entry:entry", "/subsystem:console"],
    output: "/out:",
};

pub(crate) const WINDOWS_X64_GCC: Platform = Platform {
    name: "Windows x64, gcc",
    compilers: &[("x86_64-w64-mingw32-gcc", "program.c")],
    options: &["-DNO_SHAPES"],
    linker: &["x86_64-w64-mingw32-gcc", "-nostdlib", "-Wl,-e,entry,--export-all-symbols"],
    output: "-o",
};

const fn macho(name: &'static str, options: &'static [&'static str], linker: &'static [&'static str]) -> Platform {
    Platform { name, compilers: CLANG, options, linker, output: "-o" }
}

pub(crate) const MACOS_ARM64: Platform = macho(
    "macOS arm64",
    &["--target=arm64-apple-macos13", "-fno-asynchronous-unwind-tables", "-funwind-tables"],
    &[
        "ld64.lld-19",
        "-arch",
        "arm64",
        "-platform_version",
        "macos",
        "13.0",
        "13.0",
        "-no_fixup_chains",
        "-undefined",
        "dynamic_lookup",
        "-e",
        "_entry",
    ],
);

pub(crate) const MACOS_X86_64: Platform = macho(
    "macOS x86_64",
    &["--target=x86_64-apple-macos13", "-fno-asynchronous-unwind-tables", "-funwind-tables"],
    &[
        "ld64.lld-19",
        "-arch",
        "x86_64",
        "-platform_version",
        "macos",
        "13.0",
        "13.0",
        "-no_fixup_chains",
        "-undefined",
        "dynamic_lookup",
        "-e",
        "_entry",
    ],
);

/// Compiles and links the program of the tests; the error is the name of a tool that is missing.
pub(crate) fn build(platform: &Platform, options: &[&str], directory: &Path) -> Result<PathBuf, &'static str> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/image_step");
    let mut objects = Vec::new();
    for (compiler, file) in platform.compilers {
        let object = directory.join(file).with_extension("o");
        let mut command = Command::new(compiler);
        command.args([
            "-g0",
            "-w",
            "-ffreestanding",
            "-fno-builtin",
            "-fasynchronous-unwind-tables",
            "-fno-stack-protector",
        ]);
        if file.ends_with("cpp") {
            command.args(["-fno-rtti", "-fexceptions"]);
        }
        command.args(platform.options).args(options).arg("-c").arg(source.join(file)).arg("-o").arg(&object);
        let Ok(status) = command.status() else { return Err(compiler) };
        assert!(status.success(), "{compiler} compiles {file} for {}", platform.name);
        objects.push(object);
    }
    let image = directory.join("image.exe");
    let [linker, linker_options @ ..] = platform.linker else { return Err("linker") };
    let mut command = Command::new(linker);
    command.args(linker_options).args(&objects);
    if platform.output.ends_with(':') {
        command.arg(format!("{}{}", platform.output, image.display()));
    } else {
        command.arg(platform.output).arg(&image);
    }
    let Ok(output) = command.output() else { return Err(linker) };
    assert!(output.status.success(), "{linker}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(image)
}

/// What a test reads of an image.
pub(crate) struct Image<'a> {
    pub(crate) arch: Arch,
    pub(crate) base: u64,
    pub(crate) entry: u64,
    pub(crate) text: Vec<Range<u64>>,
    pub(crate) code: Vec<(u64, &'a [u8])>,
    pub(crate) loaded: Vec<(u64, &'a [u8])>,
    /// Addresses and sizes of what is loaded.
    pub(crate) ranges: Vec<(u64, u64)>,
    pub(crate) pdata: Option<(u64, &'a [u8])>,
    pub(crate) unwind_info: Option<(u64, &'a [u8])>,
    pub(crate) eh_frame: Option<(u64, &'a [u8])>,
    pub(crate) functions: Vec<u64>,
    pub(crate) plt: Vec<compile::Plt<'a>>,
    /// The exports by name.
    pub(crate) exports: Vec<(String, u64)>,
    debug_id: DebugId,
}

impl<'a> Image<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        let file = object::File::parse(bytes).expect("an image");
        let arch = match file.architecture() {
            Architecture::X86_64 => Arch::X86_64,
            _ => Arch::Aarch64,
        };
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            Some((section.address(), section.data().ok()?))
        };
        let is_macho = file.format() == object::BinaryFormat::MachO;
        let mut image = Image {
            arch,
            base: if is_macho { 0 } else { file.relative_address_base() },
            entry: file.entry(),
            text: Vec::new(),
            code: Vec::new(),
            loaded: Vec::new(),
            ranges: Vec::new(),
            pdata: section(".pdata"),
            unwind_info: section("__unwind_info"),
            eh_frame: section("__eh_frame").or_else(|| section(".eh_frame")),
            // What the list of function starts in the file says too.
            functions: file
                .symbols()
                .filter(|symbol| is_macho && symbol.kind() == object::SymbolKind::Text && symbol.address() != 0)
                .map(|symbol| symbol.address())
                .collect(),
            plt: Vec::new(),
            exports: file
                .exports()
                .expect("exports")
                .filter_map(Result::ok)
                .filter_map(|export| match (export.name().name(), export.target()) {
                    (Some(name), ExportTarget::Address { address }) => {
                        Some((String::from_utf8_lossy(name).into_owned(), address))
                    }
                    _ => None,
                })
                .collect(),
            debug_id: DebugId::from_build_id(&[1]).expect("one byte"),
        };
        for section in file.sections() {
            let data = section.data().unwrap_or_default();
            let is_code = match section.flags() {
                SectionFlags::Coff { characteristics } => characteristics.contains(pe::IMAGE_SCN_MEM_EXECUTE),
                SectionFlags::MachO { flags, .. } => flags.0 & macho::S_ATTR_PURE_INSTRUCTIONS.0 != 0,
                _ => false,
            };
            let size = section.size().max(data.len() as u64);
            if section.address() == 0 || size == 0 {
                continue;
            }
            let data = data.get(..size.min(data.len() as u64) as usize).unwrap_or_default();
            image.ranges.push((section.address(), size));
            image.loaded.push((section.address(), data));
            // How long a stub is stands in the header.
            if let SectionFlags::MachO { flags, reserved2 } = section.flags()
                && flags.0 & macho::SECTION_TYPE == u32::from(macho::S_SYMBOL_STUBS.0)
            {
                let range = section.address()..section.address() + section.size();
                image.plt.push(compile::Plt { range, entry_size: u64::from(reserved2), bytes: data });
            }
            if is_code {
                image.text.push(section.address()..section.address() + section.size().min(data.len() as u64));
                image.code.push((section.address(), data));
            }
        }
        if is_macho {
            image.base = file.segments_base();
            // Where the program begins is counted from there.
            image.entry += image.base;
        }
        image
    }

    pub(crate) fn compile(&self) -> Compiled {
        let input = Input {
            image_base: Svma(self.base),
            text: &self.text,
            eh_frame: self.eh_frame,
            pdata: self.pdata,
            unwind_info: self.unwind_info,
            loaded: &self.loaded,
            functions: &self.functions,
            plt: &self.plt,
            code: &self.code,
            source_sha256: [7; 32],
            producer: "symseal test",
            ..Input::of(self.arch, &self.debug_id)
        };
        compile::compile(&input).expect("a table")
    }
}

/// Where the image of a Mach-O file begins.
trait SegmentsBase {
    fn segments_base(&self) -> u64;
}

impl SegmentsBase for object::File<'_> {
    fn segments_base(&self) -> u64 {
        use object::ObjectSegment;
        let text = self.segments().find(|segment| segment.name() == Ok(Some("__TEXT")));
        text.map_or(0, |segment| segment.address())
    }
}
