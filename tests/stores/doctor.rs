//! `symseal doctor` beside a real PostgreSQL and a real object store: reached, stopped, with other credentials and hanging.

use serde_json::Value;

use crate::objects::{ObjectServer, SECRET};
use crate::postgres::{PASSWORD, Postgres};
use crate::program::{Ran, command};
use crate::scene::server;

/// Examines a server with this environment.
fn examine(data: &str, more: &[&str], environment: &[(&str, String)]) -> Ran {
    let mut doctor = command("symseal");
    doctor.args(["doctor", "--json", "--data", data, "--listen", "127.0.0.1:0"]).args(more);
    doctor.envs(environment.iter().map(|(name, value)| (name, value))).output().unwrap().into()
}

/// What a server says that does not start.
fn server_refused(data: &std::path::Path, environment: &[(&str, String)]) -> String {
    server_refused_from(data, &[], environment)
}

fn server_refused_from(data: &std::path::Path, more: &[&str], environment: &[(&str, String)]) -> String {
    let mut serve = command("symseal");
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(more);
    let ran: Ran = serve.envs(environment.iter().map(|(name, value)| (name, value))).output().unwrap().into();
    assert_eq!(ran.status, 2, "{}", ran.stderr);
    ran.stderr
}

#[track_caller]
fn check(ran: &Ran, id: &str, standing: &str, part: &str) {
    let found = ran.json();
    let is_it = |it: &&Value| it["id"] == id;
    let finding = found["findings"].as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("{id}: {found:#}"));
    let said = format!("{} {}", finding["found"], finding["advice"]);
    assert!(finding["standing"] == standing && said.contains(part), "{id} {standing} {part}: {finding:#}");
    assert_eq!(ran.status, i32::from(found["worst"] == "problem"), "{found:#}");
    assert!(!ran.stdout.contains(PASSWORD) && !ran.stdout.contains(SECRET), "{}", ran.stdout);
}

#[test]
fn a_postgresql_is_looked_at_and_left_as_it_is() {
    let Some(mut postgres) = Postgres::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let shown = data.to_str().unwrap();
    let database = postgres.create_database();
    let environment = [("SYMSEAL_SERVER_DATABASE", postgres.url(&database))];
    let empty = examine(shown, &[], &environment);
    check(&empty, "database.reached", "ok", "PostgreSQL 1");
    check(&empty, "database.schema", "ok", "no tables yet");
    check(&empty, "database.clock", "ok", "but for 0 s");
    let running = server(&data, &[], &environment);
    check(&examine(shown, &[], &environment), "database.schema", "ok", "as this program's");
    drop(running);
    postgres.run(&database, "UPDATE _sqlx_migrations SET success = false WHERE version = 2");
    check(&examine(shown, &[], &environment), "database.schema", "problem", "step 2");
    postgres.run(&database, "UPDATE _sqlx_migrations SET success = true, checksum = '\\x00' WHERE version = 2");
    check(&examine(shown, &[], &environment), "database.schema", "problem", "step 2");
    let wrong = [("SYMSEAL_SERVER_DATABASE", postgres.url(&database).replace(PASSWORD, "another"))];
    check(&examine(shown, &[], &wrong), "database.reached", "problem", "password");
    // A role as PostgreSQL gives it away since its version 15: it may connect, and make no table.
    let restricted = postgres.create_database();
    let statement = format!(
        "CREATE ROLE modest LOGIN PASSWORD '{PASSWORD}'; REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO modest"
    );
    postgres.run(&restricted, &statement);
    let modest = [("SYMSEAL_SERVER_DATABASE", postgres.url(&restricted).replace("//symseal:", "//modest:"))];
    check(&examine(shown, &[], &modest), "database.rights", "problem", "GRANT CREATE ON SCHEMA public");
    let refused = server_refused(&data, &modest);
    assert!(refused.contains("permission denied for schema public"), "{refused}");
    postgres.run(&restricted, "GRANT CREATE ON SCHEMA public TO modest");
    drop(server(&data, &[], &modest));
    check(&examine(shown, &[], &modest), "database.schema", "ok", "as this program's");
    // Also once the tables are there: a start asks for them all the same.
    postgres.run(&restricted, "REVOKE CREATE ON SCHEMA public FROM modest");
    check(&examine(shown, &[], &modest), "database.rights", "problem", "GRANT CREATE ON SCHEMA public");
    let refused = server_refused(&data, &modest);
    assert!(refused.contains("permission denied for schema public"), "{refused}");
    postgres.run(&restricted, "ALTER ROLE modest SET search_path = nowhere");
    check(&examine(shown, &[], &modest), "database.rights", "problem", "search_path");
    postgres.stop();
    check(&examine(shown, &[], &environment), "database.reached", "problem", &database);
}

#[test]
fn an_object_store_is_looked_at_and_left_as_it_is() {
    let Some(mut objects) = ObjectServer::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let (shown, blobs) = (data.to_str().unwrap(), objects.url());
    let more = ["--blobs", blobs.as_str()];
    let mut environment = objects.environment();
    environment.push(("SYMSEAL_SERVER_S3__SILENCE", "1s".to_owned()));
    let empty = examine(shown, &more, &environment);
    check(&empty, "objects.reached", "ok", "is empty");
    check(&empty, "objects.clock", "ok", "but for 0 s");
    assert!(!objects.file("symseal.txt").exists() && !data.exists(), "something was made");
    std::fs::create_dir_all(objects.file("")).unwrap();
    std::fs::write(objects.file("of-another"), "1").unwrap();
    check(&examine(shown, &more, &environment), "objects.reached", "warning", "prefix of its own");
    drop(server(&data, &more, &environment));
    check(&examine(shown, &more, &environment), "objects.reached", "ok", "a server was started on it");
    let mut wrong = environment.clone();
    wrong.push(("AWS_SECRET_ACCESS_KEY", "another".to_owned()));
    check(&examine(shown, &more, &wrong), "objects.reached", "problem", "credentials");
    // A key that it does not know is 404 there, as if there were no such object.
    let mut unknown = environment.clone();
    unknown.push(("AWS_ACCESS_KEY_ID", "nobodys".to_owned()));
    let told = examine(shown, &more, &unknown);
    check(&told, "objects.reached", "problem", "refuses this server's credentials");
    assert!(!told.stdout.contains("does not answer"), "{}", told.stdout);
    let refused = server_refused_from(&data, &more, &unknown);
    assert!(refused.contains("refuses this server's credentials"), "{refused}");
    objects.hang(true);
    check(&examine(shown, &more, &environment), "objects.reached", "problem", "does not answer");
    objects.hang(false);
    objects.stop();
    let away = examine(shown, &more, &environment);
    check(&away, "objects.reached", "problem", "s3.endpoint");
    check(&away, "objects.clock", "skipped", "does not answer");
}
