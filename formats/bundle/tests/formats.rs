//! The JSON of a bundle against its published schemas, and readers against damaged and hostile input.

use crate::made;
use proptest::prelude::*;
use serde_json::Value;
use symseal_bundle::module_index;
use symseal_bundle::{Bundle, Digest, IndexError, SymbolIndex, canonical, compose, oci};
use symseal_module::DebugId;
use symseal_symx::Table;

fn schema(name: &str) -> jsonschema::Validator {
    let path = format!("{}/../../docs/formats/schemas/{name}", env!("CARGO_MANIFEST_DIR"));
    let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(jsonschema::draft202012::meta::is_valid(&schema), "{name} is no JSON schema");
    jsonschema::draft202012::new(&schema).unwrap()
}

fn sound_index() -> SymbolIndex {
    let dir = tempfile::tempdir().unwrap();
    let (layout, _) = made::bundle(dir.path());
    Bundle::open(layout, None).unwrap().index().clone()
}

#[track_caller]
fn check_schema(schema: &jsonschema::Validator, json: &[u8]) -> Value {
    let value: Value = serde_json::from_slice(json).unwrap();
    if let Err(error) = schema.validate(&value) {
        panic!("{} at {}", error, error.instance_path());
    }
    value
}

#[test]
fn the_symbol_index_is_canonical_and_keeps_to_its_schema() {
    let schema = schema("symbol_index.schema.json");
    let index = sound_index();
    let json = index.to_canonical_json().unwrap();
    assert!(canonical::is_canonical(&json));
    assert_eq!(SymbolIndex::parse(&json).unwrap(), index);
    let value = check_schema(&schema, &json);

    // The schema refuses what the reader refuses.
    for (pointer, wrong) in [
        ("/schema", Value::from("symseal.symbol_index.v2")),
        ("/version", Value::from("a@b")),
        ("/shards/0/page_hashes/sha256", Value::from("sha256:AB")),
        ("/shards/0/page_hashes/path", Value::from("/etc/passwd")),
        ("/statistics/files", Value::from(-1)),
    ] {
        let mut other = value.clone();
        *other.pointer_mut(pointer).unwrap() = wrong;
        assert!(schema.validate(&other).is_err(), "{pointer}");
        assert!(SymbolIndex::parse(&serde_json::to_vec(&other).unwrap()).is_err(), "{pointer}");
    }
}

#[test]
fn module_indexes_are_canonical_and_keep_to_their_schema_with_lines_and_without() {
    let schema = schema("module_index.schema.json");
    let id: DebugId = made::IDS[0].parse().unwrap();
    for (rows, inlined) in [(200, true), (100_000, false)] {
        let bytes = made::table(&id, [1; 32], rows);
        let written = module_index::write(&Table::open(&bytes).unwrap(), "app").unwrap();
        assert_eq!(written.lines_inlined, inlined);
        assert!(canonical::is_canonical(&written.json), "the fields are not in canonical order");
        check_schema(&schema, &written.json);
        let read = module_index::parse(&written.json).unwrap();
        assert_eq!(read.functions.len(), 2);
        assert_eq!(read.functions[0].address.0, 0x40_1000);
        assert_eq!(read.functions[0].aliases, ["other"]);
        assert_eq!(read.functions[0].line, Some(7));
        assert!(read.functions[1].approximate && read.functions[1].symbol.is_empty());
        assert!(read.rows >= u64::from(rows));
        if let Some(lines) = read.lines {
            let row = &lines.rows[3];
            let [name, symbol, file, line, column] = lines.frames[row.frames[0] as usize];
            let text = |at: u32| lines.strings[at as usize].as_str();
            assert_eq!((row.address.0, row.size), (0x40_1030, 16));
            assert_eq!((text(name), text(symbol), text(file)), ("näme \"quoted\"\t\u{1}", "_Z4namev", "src/a.c"));
            assert_eq!((line, column), (10, 3));
        }
    }
}

#[test]
fn lines_stand_in_the_module_index_as_long_as_it_is_no_longer_than_its_bound() {
    let id: DebugId = made::IDS[0].parse().unwrap();
    let written = |rows: u32| {
        let bytes = made::table(&id, [1; 32], rows);
        module_index::write(&Table::open(&bytes).unwrap(), "app").unwrap()
    };
    let (mut fits, mut is_too_many) = (200, 100_000);
    while is_too_many - fits > 1 {
        let middle = fits + (is_too_many - fits) / 2;
        *(if written(middle).lines_inlined { &mut fits } else { &mut is_too_many }) = middle;
    }
    let longest = written(fits).json.len();
    // A row more is some bytes more.
    let bound = module_index::INLINE_LINES_BYTES - 64..=module_index::INLINE_LINES_BYTES;
    assert!(bound.contains(&longest), "{fits} rows, {longest} bytes");
}

#[test]
fn a_function_start_without_a_name_stands_in_the_module_index_with_an_empty_name() {
    let id: DebugId = made::IDS[0].parse().unwrap();
    let function = symseal_symx::FunctionRecord {
        start: symseal_module::Rva(0x1000),
        size: 16,
        name: symseal_symx::StrId::EMPTY,
        symbol: symseal_symx::StrId::EMPTY,
        aliases: Vec::new(),
        source: symseal_symx::SymbolSource::FunctionStarts,
        flags: symseal_symx::FunctionFlags { approximate: true, ..Default::default() },
        file: symseal_symx::StrId::EMPTY,
        line: 0,
        rows: Vec::new(),
        inlines: Vec::new(),
    };
    let input = symseal_symx::TableInput {
        debug_id: &id,
        image_base: symseal_module::Svma(0x1_0000_0000),
        source_sha256: [1; 32],
        producer: "test",
        strings: &symseal_symx::Strings::new(),
        functions: &[function],
    };
    let bytes = symseal_symx::write(&input).unwrap();
    let written = module_index::write(&Table::open(&bytes).unwrap(), "app").unwrap();
    check_schema(&schema("module_index.schema.json"), &written.json);
    let read = module_index::parse(&written.json).unwrap();
    let [function] = read.functions.as_slice() else { panic!("{:?}", read.functions) };
    assert_eq!((function.name.as_str(), function.source.as_str()), ("", "function-starts"));
    assert_eq!(read.lines.unwrap().rows.len(), 1);
}

#[test]
fn a_module_index_whose_references_lead_nowhere_is_refused() {
    let id: DebugId = made::IDS[0].parse().unwrap();
    let bytes = made::table(&id, [1; 32], 3);
    let json = module_index::write(&Table::open(&bytes).unwrap(), "app").unwrap().json;
    for pointer in ["/lines/frames/0/0", "/lines/frames/1/2", "/lines/rows/0/2"] {
        let mut value: Value = serde_json::from_slice(&json).unwrap();
        *value.pointer_mut(pointer).unwrap() = 1_000_000.into();
        let json = serde_json::to_vec(&value).unwrap();
        assert!(
            matches!(module_index::parse(&json), Err(module_index::ModuleIndexError::Reference { .. })),
            "{pointer}"
        );
    }
    let newer = String::from_utf8(json).unwrap().replace("module_index.v1", "module_index.v9");
    assert!(matches!(module_index::parse(newer.as_bytes()), Err(module_index::ModuleIndexError::Schema { .. })));
}

#[test]
fn other_forms_and_hostile_values_of_the_index_are_refused() {
    let index = sound_index();
    let json = index.to_canonical_json().unwrap();
    let text = std::str::from_utf8(&json).unwrap();
    let blank = text.replacen("{", "{ ", 1);
    assert!(matches!(SymbolIndex::parse(blank.as_bytes()), Err(IndexError::NotCanonical)));
    let doubled = text.replacen("{\"linux\"", "{\"linux\":{},\"linux\"", 1);
    assert!(SymbolIndex::parse(doubled.as_bytes()).is_err());
    let newer = text.replace("symbol_index.v1", "symbol_index.v9");
    assert!(matches!(SymbolIndex::parse(newer.as_bytes()), Err(IndexError::Schema { .. })));

    let refuse = |what: &str, change: &dyn Fn(&mut SymbolIndex)| {
        let mut other = index.clone();
        change(&mut other);
        let json = other.to_canonical_json().unwrap();
        assert!(matches!(SymbolIndex::parse(&json), Err(IndexError::Value { .. })), "{what}");
    };
    let id = made::IDS[0];
    for path in ["../up", "/abs", "a\\b", "a/../b", "x-gdb.py", "symbol_index.json", "symbol_index.sigstore.json"] {
        refuse(path, &|index| index.linux.get_mut(id).unwrap().files[0].path = path.to_owned());
    }
    for path in [
        "a/nul.debug",
        "a./b",
        "a\u{202e}b",
        "SYMBOL_INDEX.JSON",
        "symbol_index.json/x",
        "x.dSYM/Contents/Resources/Python/x",
    ] {
        refuse(path, &|index| index.linux.get_mut(id).unwrap().files[0].path = path.to_owned());
    }
    refuse("one title twice where case does not count", &|index| {
        let files = &mut index.linux.get_mut(id).unwrap().files;
        files[0].path = files[1].path.to_uppercase();
    });
    refuse("a title below another", &|index| {
        let files = &mut index.linux.get_mut(id).unwrap().files;
        files[0].path = format!("{}/below", files[1].path);
    });
    refuse("one title twice", &|index| {
        let files = &mut index.linux.get_mut(id).unwrap().files;
        files[0].path = files[1].path.clone();
    });
    refuse("a name with a directory", &|index| index.linux.get_mut(id).unwrap().name = "a/b".to_owned());
    refuse("another page size", &|index| index.linux.get_mut(id).unwrap().files[0].page_size = 1);
    refuse("a size beyond all files", &|index| index.linux.get_mut(id).unwrap().files[0].size = u64::MAX >> 12);
    refuse("an id of another platform", &|index| {
        let module = index.linux[id].clone();
        index.windows.insert(id.to_owned(), module);
    });
    refuse("an id that is none", &|index| {
        let module = index.linux.remove(id).unwrap();
        index.linux.insert("xyz".to_owned(), module);
    });
}

#[test]
fn fields_of_later_versions_are_ignored() {
    let mut value = serde_json::to_value(sound_index()).unwrap();
    value["later"] = serde_json::json!({"digest": "sha256:00"});
    value["linux"][made::IDS[0]]["later"] = 1.into();
    let json = canonical::to_vec(&value).unwrap();
    assert_eq!(SymbolIndex::parse(&json).unwrap(), sound_index());
}

#[test]
fn a_thousand_modules_are_cut_into_shards_below_400_layers() {
    let mut index = sound_index();
    let module = index.linux[made::IDS[0]].clone();
    index.linux.clear();
    index.shards.clear();
    for at in 0..1000u32 {
        let id = DebugId::from_build_id(&at.wrapping_mul(2_654_435_761).to_be_bytes().repeat(5))
            .unwrap_or_else(|_| "01".parse().unwrap());
        let mut module = module.clone();
        for file in &mut module.files {
            file.path = format!("{at}/{}", file.role);
        }
        module.arch = if at % 10 == 0 { "aarch64" } else { "x86_64" }.to_owned();
        index.linux.insert(id.to_string(), module);
    }
    let shards = compose::shards(&index).unwrap();
    assert_eq!(shards.iter().map(|shard| shard.ids.len()).sum::<usize>(), 1000);
    assert!(shards.iter().all(|shard| shard.ids.is_sorted() && shard.ids.len() * 4 < 399));
    // 100 modules in two shards of at most 99, 900 in ten.
    assert_eq!(shards.len(), 2 + 10);
    let page_hashes = sound_index().shards[0].page_hashes.clone();
    for (at, shard) in shards.iter().enumerate() {
        let mut page_hashes = page_hashes.clone();
        page_hashes.path = format!("page_hashes/{at}");
        index.shards.push(symseal_bundle::ShardEntry {
            platform: shard.platform.to_owned(),
            arch: shard.arch.clone(),
            first: shard.ids[0].clone(),
            last: shard.ids.last().unwrap().clone(),
            page_hashes,
        });
    }
    let composed = compose::compose(&index).unwrap();
    for bytes in &composed.manifests {
        assert!(oci::Manifest::parse(bytes).unwrap().layers.len() < 400);
    }
    let image_index = oci::ImageIndex::parse(&composed.image_index).unwrap();
    assert_eq!(image_index.manifests.len(), 13);
    assert_eq!(image_index.manifests[1].platform.as_ref().unwrap().architecture, "arm64");
    assert_eq!(Digest::of(&composed.image_index), composed.digest);

    // A module that no shard covers cannot be found by its id.
    index.shards.pop();
    assert!(matches!(compose::compose(&index), Err(compose::ComposeError::Shards { shards: 0, .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn mutated_indexes_and_manifests_are_read_or_refused(flips in prop::collection::vec(any::<(u32, u8)>(), 1..6), cut in any::<u32>()) {
        thread_local! {
            static SOUND: Vec<Vec<u8>> = {
                let index = sound_index();
                let composed = compose::compose(&index).unwrap();
                vec![composed.symbol_index, composed.image_index, composed.manifests[1].clone()]
            };
        }
        for mut bytes in SOUND.with(Clone::clone) {
            for (at, value) in &flips {
                let at = *at as usize % bytes.len();
                bytes[at] = *value;
            }
            if cut % 4 == 0 {
                bytes.truncate(cut as usize % bytes.len());
            }
            if let Ok(index) = SymbolIndex::parse(&bytes) {
                // Not always the same bytes: a mutated key is an unknown field.
                prop_assert!(canonical::is_canonical(&index.to_canonical_json().unwrap()));
                let _ = compose::compose(&index);
            }
            let _ = oci::ImageIndex::parse(&bytes);
            let _ = oci::Manifest::parse(&bytes);
            let _ = symseal_bundle::sources::manifests(&Digest::of(&bytes), &bytes);
        }
    }
}

#[test]
fn a_bundle_discloses_paths_names_inputs_and_what_its_files_hold() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, digest) = made::bundle(dir.path());
    let bundle = Bundle::open(layout, None).unwrap();
    let directories = |_: &[u8]| symseal_bundle::disclosure::NamedPaths {
        compile_directories: ["/home/ann/build".to_owned()].into(),
        build_paths: ["C:\\Users\\Bob\\b\\app.pdb".to_owned()].into(),
        command_lines: ["cl /c app.c".to_owned()].into(),
        ..Default::default()
    };
    let told = symseal_bundle::disclosure::disclosure(&bundle, &directories).unwrap();
    assert_eq!(told.bundle, Some(digest));
    assert_eq!(told.release, ("made".to_owned(), "1.0".to_owned()));
    assert_eq!(told.inputs.iter().collect::<Vec<_>>(), ["app"]);
    // Two modules with the same two functions, one of which has an alias.
    assert_eq!((told.functions, told.function_names, told.source_paths), (4, 3, 1));
    assert_eq!((told.names.len(), told.paths.len()), (3, 1));
    assert!(told.command_lines.contains("cl /c app.c"));
    assert_eq!((told.source_directories[0].directory.as_str(), told.source_directories[0].paths), ("src", 1));
    let homes: Vec<&str> = told.homes.iter().map(|home| home.directory.as_str()).collect();
    assert_eq!(homes, ["/home/ann", "C:\\Users\\Bob"]);
    assert_eq!((told.files.modules, told.files.executables, told.files.full_debug_info), (2, 2, 2));
    assert_eq!(told.sources, None);
    let json = serde_json::to_value(&told).unwrap();
    assert_eq!(json["build_paths"][0], "C:\\Users\\Bob\\b\\app.pdb");
    assert_eq!(json["homes"][0]["directory"], "/home/ann");

    let mut index = bundle.index().clone();
    index.sources = Some(Digest::of(b"elsewhere"));
    let layout = bundle.layout().unwrap().clone();
    let other = made::store(&layout, &index, Some("2.0"));
    let told =
        symseal_bundle::disclosure::disclosure(&Bundle::open(layout, Some(&other)).unwrap(), &directories).unwrap();
    let sources = told.sources.unwrap();
    assert_eq!((sources.digest, sources.statistics, sources.paths), (Digest::of(b"elsewhere"), None, None));
}
