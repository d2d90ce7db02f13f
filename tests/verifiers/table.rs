//! Every mutant, the check that refuses it, and what other verifiers say: the table of docs/mutations.md.

use std::fmt::Write as _;
use std::path::Path;

use symseal_seal::{CATALOGUE, CheckGroup, Expectation, Seen, SigstoreBundle, examine_seal};
use symseal_sealer::foreign::{ForeignArtifact, ForeignKey, ForeignRoot, ForeignSigner, verify_foreign};

use crate::mutants::{Mutant, Mutants, Question, asked};
use crate::peers::{Asked, Signer, ask_all};
use crate::support::World;
use crate::{content_mutants, seal_mutants, table_mutant, trust_mutants};

const PAGE: &str = "docs/mutations.md";
const BEGIN: &str = "<!-- made by the test -->\n";
const END: &str = "<!-- end -->\n";
const HEADING: [&str; 7] =
    ["part", "mutant", "symseal", "verify-bundle", "cosign 3.1.2", "@sigstore/verify 4.1.3", "PyPI sigstore 4.5.1"];

/// What `symseal verify-bundle` says, which knows no policy.
fn as_foreign(asked: &Asked) -> Option<&'static str> {
    let Signer::Key(pem) = &asked.signer else { unreachable!("seals are by keys") };
    let root = ForeignRoot::parse(asked.trusted_root.as_bytes()).unwrap();
    let signer = ForeignSigner::Key(ForeignKey::parse(pem).unwrap());
    verify_foreign(asked.bundle.as_bytes(), ForeignArtifact::Sha256(asked.sha256), &signer, &root)
        .err()
        .map(|refusal| refusal.check)
}

fn said(refused: bool) -> &'static str {
    if refused { "refuses" } else { "**accepts**" }
}

/// One line per mutant; `None` in a cell that nobody could be asked for.
fn rows(all: &[Mutant]) -> Vec<[Option<String>; 7]> {
    let questions: Vec<Asked> = all.iter().filter_map(|mutant| mutant.asked.clone()).collect();
    let peers = ask_all(&questions);
    let mut asked_so_far = 0;
    let mut rows = Vec::new();
    for mutant in all {
        let n_a = || Some("n/a".to_owned());
        let mut row = [
            Some(mutant.part.to_owned()),
            Some(mutant.name.clone()),
            Some(mutant.expected.to_owned()),
            n_a(),
            n_a(),
            n_a(),
            n_a(),
        ];
        if let Some(asked) = &mutant.asked {
            row[3] = Some(as_foreign(asked).map_or_else(|| said(false).to_owned(), str::to_owned));
            for (cell, peer) in row[4..].iter_mut().zip(&peers) {
                *cell = peer.answers.as_ref().map(|answers| said(answers[asked_so_far].is_some()).to_owned());
            }
            asked_so_far += 1;
        }
        rows.push(row);
    }
    rows
}

fn page() -> (String, String, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the page has the table's place");
    let (table, after) = rest.split_once(END).expect("the page has the table's end");
    (format!("{before}{BEGIN}"), table.to_owned(), format!("{END}{after}"))
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

#[test]
fn every_mutant_is_refused_by_the_named_check_and_the_table_says_what_others_do() {
    let mut world = World::new(6);
    let lies = seal_mutants::Lies::make(&mut world);
    let sealed = content_mutants::Sealed::make(&mut world);
    let wrong_table = table_mutant::WrongTable::make(&mut world);
    let (world, other) = (world, World::new(2));
    let mut mutants = Mutants { world: &world, all: Vec::new() };
    seal_mutants::add(&mut mutants, &lies, &other);
    trust_mutants::add(&mut mutants, &other);
    content_mutants::add(&mut mutants, &sealed);
    table_mutant::add(&mut mutants, &wrong_table);
    let all = mutants.all;

    let missed: Vec<String> = all
        .iter()
        .filter(|mutant| !mutant.found.contains(&mutant.expected))
        .map(|mutant| {
            format!("{}: {}: expected {}, found {:?}", mutant.part, mutant.name, mutant.expected, mutant.found)
        })
        .collect();
    assert!(missed.is_empty(), "{} of {} mutants:\n{}", missed.len(), all.len(), missed.join("\n"));

    // No check of a seal is there for nothing: each refuses something.
    let of_seals = CATALOGUE.iter().filter(|info| info.group != CheckGroup::Content);
    let idle: Vec<&str> =
        of_seals.map(|info| info.id).filter(|id| !all.iter().any(|mutant| mutant.expected == *id)).collect();
    assert_eq!(idle, [""; 0], "checks that no mutant is refused by");

    let rows = rows(&all);
    let (before, table, after) = page();
    let old: Vec<Vec<String>> = table
        .lines()
        .skip(2)
        .map(|line| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect())
        .collect();
    // A verifier that is not here said what the page says.
    let full: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            // By part and name: a row may come before it.
            let own = old.iter().find(|line| line.iter().zip(row).take(2).all(|(old, new)| new.as_ref() == Some(old)));
            let known = |column: usize| own.and_then(|line| line.get(column)).cloned().unwrap_or_default();
            row.iter().enumerate().map(|(column, cell)| cell.clone().unwrap_or_else(|| known(column))).collect()
        })
        .collect();
    let mut text = line(&HEADING.map(str::to_owned));
    text.push_str(&line(&HEADING.map(|_| "---".to_owned())));
    full.iter().for_each(|row| text.push_str(&line(row)));
    print!("{text}");
    let mut sums = String::new();
    for column in 3..7 {
        let asked = full.iter().filter(|row| row[column] != "n/a").count();
        let accepts = full.iter().filter(|row| row[column] == said(false)).count();
        writeln!(sums, "{}: {accepts} of {asked} accepted", HEADING[column]).unwrap();
    }
    println!("{} mutants, all refused by the named check\n{sums}", full.len());
    if std::env::var_os("SYMSEAL_BLESS").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE), format!("{before}{text}{after}")).unwrap();
        return;
    }
    for (found, told) in text.lines().zip(table.lines()) {
        assert_eq!(found, told, "{PAGE} says otherwise; SYMSEAL_BLESS=1 writes it anew");
    }
    assert_eq!(text.lines().count(), table.lines().count(), "{PAGE}: SYMSEAL_BLESS=1 writes it anew");
}

#[test]
fn the_seal_that_the_mutants_are_made_of_is_accepted_by_everybody() {
    let world = World::new(4);
    let good = asked(&world, &world.seal);
    assert_eq!(as_foreign(&good), None);
    for peer in ask_all(&[good]) {
        if let Some(answers) = peer.answers {
            assert_eq!(answers, [None], "{}", peer.name);
        }
    }
}

#[test]
fn an_old_release_after_a_newer_one_and_a_good_seal_among_junk_are_accepted() {
    let mut world = World::new(2);
    let sealed = content_mutants::Sealed::make(&mut world);
    let old = world.seal.clone();
    let newer =
        symseal_sealer::seal(&crate::support::statement("tool", "2.0"), &world.artifact, &mut world.log).unwrap();
    let question = Question::of(&world);
    let judge = |seal: &[u8], version, seen: &Seen| {
        let expectation = Expectation { version: Some(version), seen: Some(seen), ..question.expectation };
        let found = examine_seal(seal, &question.subjects, question.trust, &expectation, question.at);
        assert!(found.holds(), "{:#?}", found.checks);
        let mut after = seen.clone();
        after.record(question.trust, &found.checkpoints, &[]);
        after
    };
    let seen = judge(&newer, "2.0", &Seen::default());
    let after = judge(&old, "1.0", &seen);
    judge(&newer, "2.0", &after);
    // Junk, a stranger's seal, another product's and a damaged one beside the good one of the bundle.
    let stranger = symseal_sealer::ArtifactKey::generate().unwrap();
    let theirs = symseal_sealer::seal(&world.statement, &stranger, &mut world.log).unwrap();
    let mut damaged = SigstoreBundle::parse(&sealed.seal()).unwrap();
    damaged.envelope.signature[9] ^= 1;
    let seals = [b"{}".to_vec(), b"junk".to_vec(), theirs, old, damaged.to_json(), sealed.seal(), Vec::new()];
    let report = sealed.verify(&sealed.open(), &seals);
    assert_eq!(report.verdict, symseal_bundle::verify::Verdict::Verified, "{:#?}", report.checks);
    let report = sealed.verify(&sealed.open(), &seals[..5]);
    assert_eq!(report.verdict, symseal_bundle::verify::Verdict::Refused);
}
