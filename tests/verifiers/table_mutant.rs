//! A table that its key signed and its file does not give: every digest and the seal hold, and making it again tells.

use symseal_builder::{Options, SymbolBundleBuilder};
use symseal_bundle::{Bundle, Digest};
use symseal_seal::checks::id;
use symseal_seal::{CATALOGUE, Release, Statement, StatementParts};
use symseal_sealer::seal;

use crate::forged::forge;
use crate::mutants::{Mutant, Mutants, asked};
use crate::peers::Asked;
use crate::program::{Ran, compile_c, symseal};
use crate::support::{NOW, World};

const SOURCE: &str = "int main(int argc, char **argv) { (void)argv; return argc * 3; }\n";

/// The bundle with that table in a layout, and its good seal beside it.
pub struct WrongTable {
    dir: tempfile::TempDir,
    digest: Digest,
    seal: Vec<u8>,
}

impl WrongTable {
    pub fn make(world: &mut World) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Rust's own linker is the C compiler's.
        let program = compile_c(dir.path(), "tool", SOURCE, &["-g", "-Wl,--build-id"]).expect("a C compiler");
        let release = Options { name: "tool".into(), version: "1.0".into(), progress: None };
        let honest = dir.path().join("honest");
        SymbolBundleBuilder::new(release).add_path(program).build_into(&honest).unwrap();
        let digest = forge(&honest, &dir.path().join("wrong"), symseal_builder::PRODUCER);
        let layout = symseal_bundle::LayoutDir::open(dir.path().join("wrong")).unwrap();
        let bundle = Bundle::open(layout, Some(&digest)).unwrap();
        let statement = Statement::build(StatementParts {
            bundle: *digest.as_bytes(),
            symbol_index: *bundle.index_digest().as_bytes(),
            release: Release::new("tool", "1.0"),
            builder_version: "0.1.0",
            inputs: Vec::new(),
            modules_root: None,
            debug_ids: bundle.index().modules().map(|(_, id, _)| id.to_owned()).collect(),
            supersedes: Vec::new(),
        })
        .unwrap();
        let seal = seal(&statement, &world.artifact, &mut world.log).unwrap();
        std::fs::write(dir.path().join("seal.json"), &seal).unwrap();
        Self { dir, digest, seal }
    }

    fn verify(&self, world: &World, more: &[&str]) -> Ran {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let (bundle, signature, trust) = (at("wrong"), at("seal.json"), world.path("trust").display().to_string());
        let (now, verify) = (NOW.to_string(), ["bundle", "verify", &bundle, "--json", "--signature", &signature]);
        symseal(verify.iter().chain(&["--trust", &trust, "--at", &now]).chain(more))
    }
}

pub fn add(mutants: &mut Mutants<'_>, wrong: &WrongTable) {
    // All that was signed is as it was signed.
    wrong.verify(mutants.world, &[]).ok();
    let ran = wrong.verify(mutants.world, &["--rederive"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    let report = ran.json();
    let failed = report["checks"].as_array().unwrap().iter().filter(|check| check["status"] == "failed");
    let known = |check: &serde_json::Value| CATALOGUE.iter().find(|info| check["id"] == info.id).map(|info| info.id);
    let found = failed.filter_map(known).collect();
    mutants.all.push(Mutant {
        part: "files",
        name: "signed: a wrong .symx, asked with --rederive".into(),
        expected: id::TABLE_REDERIVED,
        found,
        asked: Some(Asked { sha256: *wrong.digest.as_bytes(), ..asked(mutants.world, &wrong.seal) }),
    });
}
