//! The job that a release pipeline runs, and the credentials that it has.

use std::process::{Command, Stdio};

use crate::front::{Login, Manners};
use crate::program::{self, Ran, command, symseal};
use crate::scene::{Scene, moved, run};

#[test]
fn a_pipeline_logs_in_by_docker_s_file_or_by_the_environment() {
    let login = Login::Bearer { user: "robot", password: "s:ecret", identity: "-" };
    let scene = Scene::new(Manners { login, ..Manners::default() });
    let Some(app) = scene.module("app", "* 3") else { return };
    let to = scene.place("team/app:1.0");
    let publish = |variables: &[(&str, &str)]| -> Ran {
        let arguments = ["publish", &app, "--to", &to, "--name", "app", "--version", "1.0"];
        command("symseal").args(arguments).envs(variables.iter().copied()).output().expect("it starts").into()
    };
    publish(&[]).refused(2, &["a caller without credentials", "docker login", "SYMSEAL_REGISTRY_USER"]);
    let host = scene.front.address.to_string();
    let of_environment = [
        ("SYMSEAL_REGISTRY", host.as_str()),
        ("SYMSEAL_REGISTRY_USER", "robot"),
        ("SYMSEAL_REGISTRY_PASSWORD", "s:ecret"),
    ];
    publish(&of_environment).ok();
    publish(&[of_environment[0], of_environment[1], ("SYMSEAL_REGISTRY_PASSWORD", "wrong")])
        .refused(2, &["the user \"robot\""]);
    publish(&of_environment[1..]).refused(2, &["SYMSEAL_REGISTRY:"]);

    std::fs::create_dir(scene.at("docker")).unwrap();
    // printf robot:s:ecret | base64
    let file = format!(r#"{{"auths":{{"{host}":{{"auth":"cm9ib3Q6czplY3JldA=="}}}}}}"#);
    std::fs::write(scene.at("docker/config.json"), file).unwrap();
    let docker = scene.at("docker");
    publish(&[("DOCKER_CONFIG", &docker)]).ok();
    let pulled: Ran = command("symseal")
        .args(["bundle", "pull", &to, "--output", &scene.at("pulled")])
        .env("DOCKER_CONFIG", &docker)
        .output()
        .unwrap()
        .into();
    pulled.ok();
    std::fs::write(scene.at("docker/config.json"), "{").unwrap();
    publish(&[("DOCKER_CONFIG", &docker)]).refused(2, &["config.json", "not JSON"]);
}

/// Runs the job of a pipeline with its environment.
fn job(scene: &Scene, step: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let mut job = Command::new("sh");
    job.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/release-jobs/publish.sh")).arg(step).args(arguments);
    let of_commands = command("symseal");
    for (name, value) in of_commands.get_envs() {
        match value {
            Some(value) => job.env(name, value),
            None => job.env_remove(name),
        };
    }
    job.env("SYMSEAL", program::symseal_path()).env("SYMSEAL_NAME", "app").env("SYMSEAL_VERSION", "1.0");
    job.env("SYMSEAL_REPOSITORY", scene.place("team/app")).envs(variables.iter().copied());
    job.stdin(Stdio::null()).output().expect("sh starts").into()
}

#[test]
fn the_release_job_publishes_parts_joins_them_and_attaches_them_to_the_image() {
    let scene = Scene::new(Manners::default());
    let Some(built) = scene.module("app", "* 3") else { return };
    let (one, two) = (scene.module("libone.so", "+ 1").unwrap(), scene.module("libtwo.so", "- 2").unwrap());
    // A part of another platform, where its compiler is there.
    let two = scene.windows_module("app.exe").unwrap_or(two);
    let image = scene.image("team/app:1.0");
    // The first job builds its release itself.
    let app = scene.at("app");
    let build = format!("cp {built} {app}");
    let mut parts = Vec::new();
    for (platform, build, path) in [("first", build.as_str(), &app), ("second", "", &one), ("third", "", &two)] {
        // Two of the parts come with their sources.
        let inputs = scene.at("inputs");
        let sources = if platform == "third" { "" } else { inputs.as_str() };
        let variables = [("SYMSEAL_PLATFORM", platform), ("SYMSEAL_BUILD", build), ("SYMSEAL_SOURCES", sources)];
        let ran = job(&scene, "part", &variables, &[path]).ok();
        assert!(
            ran.stdout.starts_with(&scene.place("team/app@sha256:")) && ran.stdout.lines().count() == 1,
            "{}",
            ran.stdout
        );
        parts.push(ran.stdout.trim().to_owned());
    }
    let (parts, key, log) = (parts.join("\n"), scene.at("keys/artifact.key.pem"), scene.at("log"));
    let subject = format!("{}@{image}", scene.place("team/app"));
    let variables =
        [("SYMSEAL_PARTS", parts.as_str()), ("SYMSEAL_KEY", &key), ("SYMSEAL_LOG", &log), ("SYMSEAL_IMAGE", &subject)];
    scene.front.take();
    let ran = job(&scene, "join", &variables, &[]).ok();
    let joined = ran.stdout.trim();
    let (sent, _) = moved(&scene.front.take());
    let bundle = scene.verified(joined, "pulled");
    assert_eq!(bundle.index().statistics.modules, 3);
    assert_eq!(bundle.image_index().unwrap().subject.as_ref().map(|subject| subject.digest), Some(image));
    assert!(sent < bundle.index().statistics.bytes / 2, "{sent} bytes of {}", bundle.index().statistics.bytes);
    assert_eq!(scene.verified(&scene.place("team/app:1.0-symbols"), "by-tag").digest(), bundle.digest());

    let sources = format!("{}.sources", scene.place("team/app:1.0-symbols"));
    symseal(["bundle", "pull", &sources, "--output", &scene.at("by-tag")]).ok();
    let listed = symseal(["index", "sources", &scene.at("by-tag")]).ok().stdout;
    assert!(listed.contains("app.c") && listed.contains("libone.so.c"), "{listed}");

    // Its exit status is symseal's, and what is missing is named.
    job(&scene, "join", &variables[..1], &[]).refused(2, &["SYMSEAL_KEY"]);
    job(&scene, "part", &[], &[]).refused(2, &["expected the files"]);
    job(&scene, "", &[], &[]).refused(2, &["expected part or join"]);
    job(&scene, "part", &[("SYMSEAL_BUILD", "exit 7")], &[&app]).refused(7, &[]);
    job(&scene, "part", &[("SYMSEAL_NAME", "")], &[&app]).refused(2, &["SYMSEAL_NAME"]);
    // What a release gate asks for is passed on.
    std::fs::create_dir(scene.at("gate")).unwrap();
    std::fs::copy(&app, scene.at("gate/app")).unwrap();
    std::fs::write(scene.at("gate/cut.dll"), [b"MZ".as_slice(), &[0; 58], &[0x40, 0, 0, 0], b"PE\0\0"].concat())
        .unwrap();
    let gate = scene.at("gate");
    job(&scene, "part", &[("SYMSEAL_OPTIONS", "--strict")], &[&gate]).refused(1, &["cut.dll"]);
    job(&scene, "part", &[("SYMSEAL_OPTIONS", "--strict --exclude *.dll")], &[&gate]).ok();
    // A version and a platform may have characters that no tag has; the release keeps its version.
    let odd = [("SYMSEAL_VERSION", "1.0+git~7"), ("SYMSEAL_PLATFORM", "linux x86")];
    job(&scene, "part", &odd, &[&app]).ok();
    let (part, store) = (scene.place("team/app:1.0_git_7-linux_x86"), scene.at("store"));
    let inspected = symseal(["bundle", "inspect", &part, "--store", &store]).ok().stdout;
    assert!(inspected.contains("1.0+git~7"), "{inspected}");
    // A machine that lacks something is no release that lacks something.
    job(&scene, "part", &[("SYMSEAL", "/nowhere/symseal")], &[&app]).refused(2, &["/nowhere/symseal"]);
    job(&scene, "part", &[("TMPDIR", "/nowhere")], &[&app]).refused(2, &["TMPDIR"]);
    let gone = scene.at("gone.pem");
    let variables = [("SYMSEAL_PARTS", parts.as_str()), ("SYMSEAL_KEY", &gone), ("SYMSEAL_LOG", &log)];
    job(&scene, "join", &variables, &[]).refused(2, &["--key", &gone]);
    let missing = scene.place("team/app:none");
    job(&scene, "join", &[("SYMSEAL_PARTS", &missing), ("SYMSEAL_KEY", &key), ("SYMSEAL_LOG", &log)], &[])
        .refused(1, &[&missing]);
}

#[test]
fn the_release_jobs_are_plain_shell() {
    let Some(shellcheck) = program::tool("shellcheck") else { return };
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/release-jobs")).expect("the folder") {
        let path = entry.expect("an entry").path();
        // What a deployment takes lies in a folder beside the jobs.
        if path.is_dir() {
            continue;
        }
        run(Command::new(&shellcheck).args(["--shell=sh", "--severity=style"]).arg(&path));
    }
}
