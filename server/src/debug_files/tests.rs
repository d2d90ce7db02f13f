//! Which file answers, and from when on.

use super::*;
use crate::seals::Verdict;

fn key() -> Key {
    Key::Id("ab".parse().unwrap())
}

fn name(text: &str) -> RepositoryName {
    text.parse().unwrap()
}

fn standing(repository: &str, is_sealed: bool) -> Standing {
    let verdict = if is_sealed { Verdict::Sealed(Default::default()) } else { Verdict::Unsealed };
    Standing::default().with(name(repository), verdict)
}

/// A bundle of a release `release` with one file.
fn bundle(text: &str, debug_info: DebugInfo, release: &str) -> NewBundle {
    let digest = BlobDigest::of(format!("{release}/{text}").as_bytes());
    let candidate = Candidate {
        kind: FileKind::Debuginfo,
        debug_info,
        lacks_sections: false,
        size: text.len() as u64,
        digest: BlobDigest::of(text.as_bytes()),
        name: "app".into(),
        file: "app".into(),
        bundle: digest.clone(),
    };
    let entry = BundleEntry {
        digest: digest.to_string(),
        name: release.into(),
        version: "1".into(),
        symbol_index: [0; 32],
        modules_root: None,
        is_loose: false,
    };
    NewBundle { entry, digest, files: vec![(key(), candidate)] }
}

fn file(bundle: &NewBundle) -> Candidate {
    bundle.files[0].1.clone()
}

fn find(files: &DebugFiles) -> Option<Candidate> {
    files.find_in(&Scope::default(), &key(), FileKind::Debuginfo)
}

fn claim<'a>(bundle: &'a NewBundle, repository: &'a RepositoryName, is_sealed: bool) -> Claim<'a> {
    Claim { bundle: &bundle.digest, name: &bundle.entry.name, repository, is_sealed, files: &bundle.files }
}

#[test]
fn the_better_file_answers_whatever_came_first() {
    let poor = bundle("symbols only", DebugInfo::Symbols, "one");
    let rich = bundle("full", DebugInfo::Full, "two");
    for order in [[&poor, &rich], [&rich, &poor]] {
        let files = DebugFiles::default();
        for new in order {
            files.insert(vec![(new.clone(), standing("r", false))]).unwrap();
        }
        let [contested] = files.contested(&order[1].files, 9).try_into().unwrap();
        assert_eq!((&contested.answers, &contested.passed_over), (&file(&rich), &file(&poor)));
        assert_eq!(find(&files), Some(file(&rich)));
        assert_eq!(files.find_in(&Scope::default(), &key(), FileKind::Executable), None);
        assert_eq!(files.len(), 1);
    }
}

#[test]
fn a_sealed_file_answers_before_a_better_one_and_a_loose_one_after_all() {
    let (poor, rich) = (bundle("symbols only", DebugInfo::Symbols, "one"), bundle("full", DebugInfo::Full, "two"));
    let mut loose = bundle("full and longer", DebugInfo::Full, "");
    loose.entry.is_loose = true;
    let files = DebugFiles::default();
    files.insert(vec![(loose.clone(), standing("loose", false))]).unwrap();
    assert_eq!(find(&files), Some(file(&loose)));
    files.insert(vec![(poor.clone(), standing("r", false)), (rich.clone(), standing("r", false))]).unwrap();
    assert_eq!(find(&files), Some(file(&rich)));
    files.set([(poor.digest.clone(), standing("r", true))]);
    assert_eq!(find(&files), Some(file(&poor)));
    files.set([(poor.digest.clone(), Standing::default()), (rich.digest.clone(), Standing::default())]);
    assert_eq!(find(&files), Some(file(&loose)));
}

#[test]
fn the_same_bytes_in_two_bundles_are_no_conflict_and_outlive_one_of_them() {
    let files = DebugFiles::default();
    let (one, two) = (bundle("same", DebugInfo::Full, "one"), bundle("same", DebugInfo::Full, "two"));
    for new in [&one, &two, &two] {
        files.insert(vec![(new.clone(), standing("r", false))]).unwrap();
        assert!(files.contested(&new.files, 9).is_empty());
    }
    files.set([(one.digest.clone(), Standing::default())]);
    assert_eq!(find(&files), Some(file(&two)));
    files.set([(two.digest.clone(), Standing::default())]);
    assert_eq!((files.len(), find(&files)), (0, None));
    // What was forgotten may come again.
    files.insert(vec![(one.clone(), standing("r", false))]).unwrap();
    assert_eq!(find(&files), Some(file(&one)));
}

#[test]
fn where_seals_are_required_a_bundle_is_seen_from_its_seal_on() {
    let files = DebugFiles::default();
    files.require_seals(vec![name("prod").into()]);
    let new = bundle("full", DebugInfo::Full, "app");
    files.insert(vec![(new.clone(), standing("prod/app", false))]).unwrap();
    assert_eq!((find(&files), files.len(), files.is_shown(&new.digest)), (None, 0, false));
    files.set([(new.digest.clone(), standing("prod/app", true))]);
    assert_eq!((find(&files), files.len()), (Some(file(&new)), 1));
    files.set([(new.digest.clone(), standing("prod/app", false))]);
    assert_eq!(find(&files), None);
    // A repository that asks for none shows it, and only to those who ask there or everywhere.
    let both = standing("prod/app", false).with(name("product"), Verdict::Unsealed);
    files.set([(new.digest.clone(), both)]);
    let find_in = |prefix: &str| files.find_in(&Scope::of(name(prefix).into()), &key(), FileKind::Debuginfo);
    assert!(find(&files).is_some() && find_in("product").is_some());
    assert!(find_in("prod").is_none() && find_in("prod/app").is_none() && find_in("produc").is_none());
    files.require_seals(vec![Prefix::default()]);
    assert_eq!(find(&files), None);
}

#[test]
fn a_seal_in_one_repository_is_none_in_another() {
    let files = DebugFiles::default();
    files.require_seals(vec![name("prod").into()]);
    let (sealed, richer) = (bundle("symbols only", DebugInfo::Symbols, "one"), bundle("full", DebugInfo::Full, "two"));
    let both = standing("vault", true).with(name("prod/app"), Verdict::Unsealed);
    files.insert(vec![(sealed.clone(), both.clone().with(name("public"), Verdict::Unsealed))]).unwrap();
    let find_in = |prefix: &str| files.find_in(&Scope::of(name(prefix).into()), &key(), FileKind::Debuginfo);
    assert_eq!((find_in("prod/app"), find_in("vault"), find_in("public")), (None, Some(file(&sealed)), find(&files)));
    assert!(!files.is_shown_to(&sealed.digest, |at| *at == name("prod/app")));
    assert!(files.is_shown_to(&sealed.digest, |at| *at == name("public")));
    // It goes before better files where it is sealed, and for those who ask there too.
    files.insert(vec![(richer.clone(), standing("vault", false).with(name("public"), Verdict::Unsealed))]).unwrap();
    assert_eq!((find_in("vault"), find_in("public")), (Some(file(&sealed)), Some(file(&richer))));
    assert_eq!(find(&files), Some(file(&sealed)));
    // Without the seal it is what it was everywhere else.
    files.set([(sealed.digest.clone(), Standing::default().with(name("public"), Verdict::Unsealed))]);
    assert_eq!((find_in("vault"), find_in("public")), (Some(file(&richer)), Some(file(&richer))));
    let verdict = |may_know: &dyn Fn(&RepositoryName) -> bool| both.among(may_know).code();
    assert_eq!((verdict(&|_| true), verdict(&|at| *at == name("prod/app"))), ("sealed", "unsealed"));
    assert_eq!(verdict(&|_| false), "unjudged");
}

#[test]
fn bytes_that_are_sealed_as_another_kind_of_file_are_nobodys_claim() {
    let files = DebugFiles::default();
    let of_kind = |new: &NewBundle, kind| Candidate { kind, ..file(new) };
    let mut sealed = bundle("debug file", DebugInfo::Full, "app");
    let program = bundle("program", DebugInfo::Full, "app");
    sealed.files.push((key(), Candidate { bundle: sealed.digest.clone(), ..of_kind(&program, FileKind::Executable) }));
    files.insert(vec![(sealed.clone(), standing("prod/app", true))]).unwrap();
    let elsewhere = name("loose");
    // The program, unstripped, is a debug file too.
    let same = bundle("program", DebugInfo::Full, "");
    assert!(files.second_owner(&claim(&same, &elsewhere, false)).is_none());
    let other = bundle("another program", DebugInfo::Full, "");
    assert!(files.second_owner(&claim(&other, &elsewhere, false)).is_some());
    files.set([(sealed.digest.clone(), standing("prod/app", false))]);
    files.insert(vec![(bundle("third", DebugInfo::Full, "third"), standing("prod/third", true))]).unwrap();
    assert!(files.second_owner(&claim(&same, &elsewhere, false)).is_some(), "nobody has sealed these");
}

#[test]
fn a_second_owner_of_a_sealed_id_needs_the_same_bytes() {
    let files = DebugFiles::default();
    let sealed = bundle("sealed", DebugInfo::Full, "app");
    files.insert(vec![(sealed.clone(), standing("prod/app", true))]).unwrap();
    let (here, elsewhere) = (name("prod/app"), name("evil/app"));
    let other = bundle("other", DebugInfo::Full, "evil");
    let refused = files.second_owner(&claim(&other, &elsewhere, false)).unwrap();
    assert_eq!((refused.sealed, refused.offered), (file(&sealed).digest, file(&other).digest));
    assert_eq!((refused.bundle, refused.name.as_str()), (sealed.digest.clone(), "app"));
    // Neither the repository nor the name nor another's seal alone makes an owner.
    assert!(files.second_owner(&claim(&other, &here, true)).is_some());
    let rebuilt = bundle("rebuilt", DebugInfo::Full, "app");
    assert!(files.second_owner(&claim(&rebuilt, &elsewhere, false)).is_some());
    assert!(files.second_owner(&claim(&rebuilt, &here, false)).is_none());
    assert!(files.second_owner(&claim(&rebuilt, &elsewhere, true)).is_none());
    let same = bundle("sealed", DebugInfo::Full, "evil");
    assert!(files.second_owner(&claim(&same, &elsewhere, false)).is_none());
    // Without a seal nobody owns anything.
    files.set([(sealed.digest.clone(), standing("prod/app", false))]);
    assert!(files.second_owner(&claim(&other, &elsewhere, false)).is_none());
}

#[test]
fn the_index_file_holds_everything_and_one_that_is_damaged_holds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ids.index");
    let files = DebugFiles::default();
    let (one, two) = (bundle("symbols only", DebugInfo::Symbols, "one"), bundle("full", DebugInfo::Full, "two"));
    for new in [&one, &two] {
        files.insert(vec![(new.clone(), standing("r", false))]).unwrap();
    }
    files.save(&path).unwrap();
    assert_eq!(find(&files), Some(file(&two)));
    let load = |standings: &dyn Fn(&BlobDigest) -> Option<Standing>| {
        let loaded = DebugFiles::default();
        let bundles = loaded.load(&path, standings);
        (bundles, find(&loaded))
    };
    assert_eq!(load(&|_| Some(standing("r", false))), (2, Some(file(&two))));
    // The folders say what there is.
    let only_one = |digest: &BlobDigest| (*digest == one.digest).then(|| standing("r", false));
    assert_eq!(load(&only_one), (1, Some(file(&one))));
    let bytes = std::fs::read(&path).unwrap();
    for at in [0, 7, 20, 60, bytes.len() / 2, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(load(&|_| Some(standing("r", false))), (0, None), "{at}");
    }
    for cut in [0, 1, 63, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        assert_eq!(load(&|_| Some(standing("r", false))), (0, None), "{cut}");
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(load(&|_| Some(standing("r", false))), (0, None));
}

#[test]
fn many_bundles_lie_in_few_layers_and_each_is_found() {
    let files = DebugFiles::default();
    let id = |number: u32| Key::Id(symseal_module::DebugId::from_build_id(&(number + 1).to_be_bytes()).unwrap());
    for number in 0..100 {
        let mut new = bundle(&format!("file {number}"), DebugInfo::Full, "app");
        new.files[0].0 = id(number);
        files.insert(vec![(new, standing("r", false))]).unwrap();
    }
    assert!(files.shown.load().layers.len() < 8);
    assert_eq!(files.len(), 100);
    for number in 0..100 {
        let found = files.find_in(&Scope::default(), &id(number), FileKind::Debuginfo).unwrap();
        assert_eq!(found.digest, BlobDigest::of(format!("file {number}").as_bytes()));
        assert_eq!(files.files_of(&found.bundle).len(), 1);
    }
}

#[test]
fn who_sealed_a_program_owns_its_debug_file_and_the_other_way_round() {
    for (sealed_as, offered_as) in
        [(FileKind::Executable, FileKind::Debuginfo), (FileKind::Debuginfo, FileKind::Executable)]
    {
        let files = DebugFiles::default();
        let of_kind = |mut new: NewBundle, kind| {
            new.files[0].1.kind = kind;
            new
        };
        let sealed = of_kind(bundle("sealed", DebugInfo::Full, "app"), sealed_as);
        files.insert(vec![(sealed.clone(), standing("prod/app", true))]).unwrap();
        let (here, elsewhere) = (name("prod/app"), name("evil/app"));
        let rest = of_kind(bundle("the rest", DebugInfo::Full, "rest"), offered_as);
        let refused = files.second_owner(&claim(&rest, &elsewhere, false)).unwrap();
        assert_eq!((refused.kind, refused.sealed), (offered_as, file(&sealed).digest));
        assert!(files.second_owner(&claim(&rest, &elsewhere, true)).is_some(), "another's seal");
        // Whoever writes to the owner's repository, and whoever may sign for the release.
        assert!(files.second_owner(&claim(&rest, &here, false)).is_none());
        let own = of_kind(bundle("the rest", DebugInfo::Full, "app"), offered_as);
        assert!(files.second_owner(&claim(&own, &elsewhere, true)).is_none());
        assert!(files.second_owner(&claim(&own, &elsewhere, false)).is_some());
        // What is sealed already may come again from anywhere, with nothing beside it.
        let same = of_kind(bundle("sealed", DebugInfo::Full, "evil"), sealed_as);
        assert!(files.second_owner(&claim(&same, &elsewhere, false)).is_none());
        let mut with_more = same.clone();
        with_more.files.extend(rest.files.clone());
        assert!(files.second_owner(&claim(&with_more, &elsewhere, false)).is_some());
        // Once the owner has sealed both, only these bytes are taken from others.
        files.insert(vec![(own.clone(), standing("prod/app", true))]).unwrap();
        assert!(files.second_owner(&claim(&rest, &elsewhere, false)).is_none(), "the owner's bytes");
        let third = of_kind(bundle("a third", DebugInfo::Full, "rest"), offered_as);
        assert!(files.second_owner(&claim(&third, &here, false)).is_some());
    }
}
