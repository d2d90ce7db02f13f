//! The server's pages in Chromium: whole without JavaScript, readable on a phone, and silent about what is not for everybody.
//!
//! `SYMSEAL_PICTURES=DIR` keeps a picture of each page.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

#[path = "../program/mod.rs"]
mod program;

mod browser;

use std::path::{Path, PathBuf};

use browser::Browser;
use program::{RunningServer, symseal};

const BUILD_ID: &str = "feedface00112233";
const MISSING: &str = "0badc0de0badc0de";

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A bundle of a program whose name is markup, under two versions.
fn publish(root: &Path, address: &str, repository: &str) -> Option<()> {
    let id = format!("-Wl,--build-id=0x{BUILD_ID}");
    let binary = program::compile_c(root, "app", "int main(void) { return 0; }\n", &["-g", &id])?;
    let odd = root.join("a<b>&'c\".so");
    std::fs::copy(&binary, &odd).unwrap();
    for version in ["1.9", "1.10"] {
        let layout = root.join(version);
        symseal(["bundle", "build", &text(&odd), "--name", "shop", "--version", version, "--output", &text(&layout)])
            .ok();
        symseal(["bundle", "push", &text(&layout), &format!("{address}/{repository}:{version}")]).ok();
    }
    Some(())
}

/// The pages fit the window: nothing is wider than it but what scrolls by itself.
fn assert_fits(browser: &mut Browser, page: &str) {
    let overflow = browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    assert_eq!(overflow, 0, "{page} is wider than the window");
}

#[test]
fn people_find_their_way_with_nothing_but_links_and_forms() {
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let server = RunningServer::start(&root.path().join("data"));
    let Some(()) = publish(root.path(), &server.address, "shop/app") else { return };
    let url = format!("http://{}", server.address);
    let pictures = std::env::var_os("SYMSEAL_PICTURES").map(PathBuf::from);
    browser.forbid_scripts();
    browser.resize(1280, 900, false);

    // Somebody asks for an id that nobody has.
    for _ in 0..3 {
        browser.open(&format!("{url}/buildid/{MISSING}/debuginfo"));
    }
    browser.complaints.clear();

    browser.open(&format!("{url}/"));
    let home = browser.text();
    for expected in ["2 bundles", "1 debug id\n", "shop@1.10", "not judged", MISSING, &format!("DEBUGINFOD_URLS={url}")]
    {
        assert!(home.contains(expected), "{expected}: {home}");
    }
    assert!(home.find("shop@1.10") < home.find("shop@1.9"), "{home}");

    // By the beginning of an id, typed into the form.
    browser.evaluate("document.querySelector('header input').value = 'FEEDface'");
    browser.follow("document.querySelector('header form').submit()");
    let found = browser.text();
    assert!(
        found.contains(BUILD_ID) && found.contains("a<b>&'c\".so") && found.contains("debuginfo, executable"),
        "{found}"
    );
    browser.follow("document.querySelector('td a[href^=\"bundles/\"]').click()");
    let bundle = browser.text();
    for expected in ["shop@1.", BUILD_ID, "x86_64", "full", "symbol-table", "oras cp -r", "1 of 1 modules"] {
        assert!(bundle.contains(expected), "{expected}: {bundle}");
    }

    for (name, path) in [("home", "/"), ("search", "/search?q=shop"), ("releases", "/releases"), ("wanted", "/wanted")]
    {
        for (window, width, height) in [("phone", 360, 800), ("desk", 1280, 900)] {
            browser.resize(width, height, window == "phone");
            browser.open(&format!("{url}{path}"));
            assert_fits(&mut browser, &format!("{name} on a {window}"));
            if let Some(pictures) = &pictures {
                browser.picture(&pictures.join(format!("{name}-{window}.png")));
            }
        }
    }
    browser.open(&format!("{url}/releases"));
    let bundle = browser.evaluate("document.querySelector('td a').href").as_str().unwrap().to_owned();
    for (window, width, scheme) in [("phone", 360, "light"), ("desk", 1280, "dark")] {
        browser.resize(width, 900, window == "phone");
        browser.prefer(scheme);
        browser.open(&bundle);
        assert_fits(&mut browser, &format!("a bundle on a {window}"));
        if let Some(pictures) = &pictures {
            browser.picture(&pictures.join(format!("bundle-{window}-{scheme}.png")));
        }
    }
    // A file of a module is a link away.
    let file = browser.evaluate("document.querySelector('td a[title]').href").as_str().unwrap().to_owned();
    assert!(file.starts_with(&format!("{url}/v2/shop/app/blobs/sha256:")), "{file}");
    browser.open(&format!("{url}/wanted"));
    assert!(browser.text().contains(MISSING), "{}", browser.text());
    assert_eq!(browser.complaints, Vec::<String>::new());

    browser.open(&format!("{url}/bundles/sha256:{}", "0".repeat(64)));
    assert!(browser.text().contains("No such bundle"));
    browser.open(&format!("{url}/search?q={}", "%3Cscript%3Ealert(1)%3C/script%3E"));
    assert!(browser.text().contains("<script>alert(1)</script>"));
    assert_eq!(browser.evaluate("document.scripts.length"), 0);
}

#[test]
fn strangers_see_nothing_of_what_they_may_not_read() {
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    {
        let open = RunningServer::start(&data);
        let Some(()) = publish(root.path(), &open.address, "secret/app") else { return };
    }
    let token = |grants: &[&str]| {
        let fixed = ["token", "create", "--data", data.to_str().unwrap(), "--name", "test"];
        symseal(fixed.iter().chain(grants)).ok().stdout.trim().to_owned()
    };
    let (reader, auditor) = (token(&["--read", "secret"]), token(&["--grant", "audit:read"]));
    let server = RunningServer::start_with(&data, &["--access", "tokens"]);
    let url = format!("http://{}", server.address);

    for path in ["/", "/releases", "/search?q=shop", &format!("/search?q={BUILD_ID}")] {
        browser.open(&format!("{url}{path}"));
        let page = browser.text();
        assert!(!page.contains("shop@") && !page.contains("secret"), "{path}: {page}");
    }
    browser.open(&format!("{url}/wanted"));
    assert!(browser.text().contains("audit:read"), "{}", browser.text());
    // Nor is it told that there is nothing, or that debuggers need no token.
    let told = |page: &str| {
        assert!(!page.contains("Nothing was published") && page.contains("that you may read"), "{page}");
        assert!(page.contains("/t/TOKEN") && page.contains("DEBUGINFOD_HEADERS_FILE"), "{page}");
        assert!(!page.contains(&reader) && !page.contains(&auditor), "{page}");
    };
    browser.open(&format!("{url}/"));
    told(&browser.text());
    assert!(browser.text().contains("nothing that everybody may read"), "{}", browser.text());
    assert_fits(&mut browser, "a stranger's");
    browser.open(&format!("{url}/t/{auditor}/"));
    told(&browser.text());
    assert!(browser.text().contains("nothing that your token may read"), "{}", browser.text());

    // An id that is here is not wanted, whoever asks in vain.
    browser.open(&format!("{url}/buildid/{BUILD_ID}/debuginfo"));
    browser.open(&format!("{url}/buildid/{MISSING}/debuginfo"));
    browser.send_header("Authorization", &format!("Bearer {auditor}"));
    browser.open(&format!("{url}/wanted"));
    let page = browser.text();
    assert!(page.contains(MISSING) && !page.contains(BUILD_ID), "{page}");

    // A path token goes along with every link.
    browser.send_header("Authorization", "");
    browser.open(&format!("{url}/t/{reader}/"));
    assert!(browser.text().contains("shop@1.10"), "{}", browser.text());
    browser.follow("document.querySelector('td a').click()");
    let page = browser.text();
    assert!(page.contains(BUILD_ID) && page.contains("secret/app"), "{page}");
    browser.follow("document.querySelector('.brand').click()");
    let address = browser.evaluate("location.pathname");
    assert!(address.as_str().unwrap().starts_with("/t/"), "{address}");
}

/// One seal by a key that the server trusts, one by a stranger's, and none: each page says which, and why.
#[test]
fn pages_say_whether_a_seal_is_trusted_and_why_not() {
    let Some(mut browser) = Browser::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&root.path().join(name));
    for keys in ["ours", "theirs"] {
        symseal(["key", "generate", "--output", &at(keys)]).ok();
    }
    let (trust, log) = (at("trust"), at("log"));
    let key = at("ours/artifact.pub.pem");
    symseal(["trust", "init", "--trust", &trust, "--key", &key, "--name", "shop*", "--log", &log]).ok();
    let server = RunningServer::start_with(&root.path().join("data"), &["--trust", &trust]);
    let url = format!("http://{}", server.address);
    let pictures = std::env::var_os("SYMSEAL_PICTURES").map(PathBuf::from);
    let releases =
        [("1.0", Some("ours"), "sealed"), ("2.0", Some("theirs"), "seal refused"), ("3.0", None, "not sealed")];
    for (version, keys, _) in releases {
        let folder = root.path().join(format!("build-{version}"));
        std::fs::create_dir(&folder).unwrap();
        let id = format!("-Wl,--build-id=0x{BUILD_ID}{}", version.replace('.', ""));
        let Some(binary) = program::compile_c(&folder, "app", "int main(void) { return 0; }\n", &["-g", &id]) else {
            return;
        };
        let layout = at(version);
        symseal(["bundle", "build", &text(&binary), "--name", "shop", "--version", version, "--output", &layout]).ok();
        if let Some(keys) = keys {
            let key = at(&format!("{keys}/artifact.key.pem"));
            symseal(["bundle", "seal", &layout, "--key", &key, "--log", &log, "--log-key", &at("ours/log.key.pem")])
                .ok();
        }
        symseal(["bundle", "push", &layout, &format!("{}/shop/app:{version}", server.address)]).ok();
    }
    browser.forbid_scripts();
    for (version, _, verdict) in releases {
        browser.open(&format!("{url}/search?q=shop"));
        let found = browser.text();
        let row =
            found.lines().find(|line| line.contains(&format!("shop@{version}"))).unwrap_or_else(|| panic!("{found}"));
        let row_and_next: String = found[found.find(row).unwrap()..].lines().take(3).collect();
        assert!(row_and_next.contains(verdict), "{version}: {found}");
        let link =
            format!("[...document.querySelectorAll('td a')].find(a => a.textContent.includes('{version}')).click()");
        browser.follow(&link);
        let page = browser.text();
        let expected: &[&str] = match verdict {
            "sealed" => &["shop@1.0", "sealed", "Signed by", "A seal holds"],
            "seal refused" => &["shop@2.0", "seal refused", "Check", "Expected", "Found"],
            _ => &["shop@3.0", "not sealed", "No seal has come for it."],
        };
        expected.iter().for_each(|part| assert!(page.contains(part), "{part}: {page}"));
        for (window, width, scheme) in [("phone", 360, "light"), ("desk", 1280, "dark")] {
            browser.resize(width, 900, window == "phone");
            browser.prefer(scheme);
            assert_fits(&mut browser, &format!("{verdict} on a {window}"));
            if let Some(pictures) = &pictures {
                browser.picture(&pictures.join(format!("{}-{window}.png", verdict.replace(' ', "-"))));
            }
        }
    }
    browser.open(&format!("{url}/"));
    assert!(browser.text().contains("1 of them sealed"), "{}", browser.text());
    assert_eq!(browser.complaints, Vec::<String>::new());
}
