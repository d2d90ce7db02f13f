//! A database as it is found, beside running servers: nothing in it is changed, and no file beside it is made.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use super::schema::{STEPS, Schema, Step};
use super::{DATABASE_FILE, DatabaseUrl, postgres, sqlite, told};
use crate::clock::between;
use crate::http::percent_encode;

/// How long a database may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long SQLite may look through its file.
const LOOK_THROUGH: Duration = Duration::from_secs(60);

/// What was found.
#[derive(Debug)]
pub(crate) struct Looked {
    /// Which database it is, in its own words.
    pub(crate) version: String,
    pub(crate) schema: Schema,
    /// What its clock showed, and what this machine's did.
    pub(crate) clock: Option<(SystemTime, SystemTime)>,
    /// Whether it takes no changes, as a standby.
    pub(crate) is_read_only: bool,
    /// Where this role may make no tables, which every start asks to do: the schema, if there is one.
    pub(crate) no_tables_in: Option<String>,
    /// What it says of its file: `ok`, or the first damage. The error: why it was not asked.
    pub(crate) sound: Option<Result<String, String>>,
}

/// Why nothing was found.
#[derive(Debug)]
pub(crate) enum NotLooked {
    /// There is no such file.
    NotThere(PathBuf),
    /// This user may not look at it, or not into its folder.
    NotAllowed(PathBuf),
    /// What was written last is in a log that SQLite would have to take over first.
    NotClosed(PathBuf),
    /// The database, or the system, said so.
    Failed(String),
}

impl From<sqlx::Error> for NotLooked {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(told(&error))
    }
}

/// Looks at the database of the URL, or at the file in the data directory.
pub(crate) async fn look_at(data: &Path, url: Option<&DatabaseUrl>) -> Result<Looked, NotLooked> {
    match url {
        Some(url) => match tokio::time::timeout(PATIENCE, look_at_postgres(url)).await {
            Ok(looked) => looked,
            Err(_) => Err(NotLooked::Failed(format!("it did not answer within {} s", PATIENCE.as_secs()))),
        },
        None => look_at_sqlite(&data.join(DATABASE_FILE)).await,
    }
}

async fn look_at_postgres(url: &DatabaseUrl) -> Result<Looked, NotLooked> {
    let mut connection: PgConnection = url.options().application_name("symseal doctor").connect().await?;
    let version: String = sqlx::query_scalar("SHOW server_version").fetch_one(&mut connection).await?;
    let asked = SystemTime::now();
    let query = "SELECT extract(epoch FROM clock_timestamp())::float8, pg_is_in_recovery()";
    let (seconds, is_read_only): (f64, bool) = sqlx::query_as(query).fetch_one(&mut connection).await?;
    let ours = between(asked, SystemTime::now());
    let clock = Duration::try_from_secs_f64(seconds).ok().map(|since| (UNIX_EPOCH + since, ours));
    let query = "SELECT to_regclass('_sqlx_migrations') IS NOT NULL";
    let has_tables: bool = sqlx::query_scalar(query).fetch_one(&mut connection).await?;
    let steps: Vec<Step> =
        if has_tables { sqlx::query_as(STEPS).fetch_all(&mut connection).await? } else { Vec::new() };
    let query =
        "SELECT coalesce(current_schema(), ''), coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)";
    let (place, may_create): (String, bool) = sqlx::query_as(query).fetch_one(&mut connection).await?;
    let no_tables_in = (!may_create).then_some(place);
    // It ends with the process, too.
    let _ = connection.close().await;
    let schema = Schema::of(&steps, &postgres::MIGRATIONS);
    Ok(Looked { version: format!("PostgreSQL {version}"), schema, clock, is_read_only, no_tables_in, sound: None })
}

async fn look_at_sqlite(file: &Path) -> Result<Looked, NotLooked> {
    match readable(file) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(NotLooked::NotThere(file.to_owned())),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(NotLooked::NotAllowed(file.to_owned()));
        }
        Err(error) => return Err(NotLooked::Failed(format!("{}: {error}", file.display()))),
    }
    let mut connection = open_sqlite(file)?.connect().await?;
    let version: String = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut connection).await?;
    let query = "SELECT count(*) > 0 FROM sqlite_schema WHERE name = '_sqlx_migrations'";
    let has_tables: bool = sqlx::query_scalar(query).fetch_one(&mut connection).await?;
    let steps: Vec<Step> =
        if has_tables { sqlx::query_as(STEPS).fetch_all(&mut connection).await? } else { Vec::new() };
    let schema = Schema::of(&steps, &sqlite::MIGRATIONS);
    let sound = match tokio::time::timeout(LOOK_THROUGH, quick_check(&mut connection)).await {
        Ok(Ok(said)) => Ok(said),
        // Damage in what it needs to look is told as an error.
        Ok(Err(error)) => Ok(error.to_string()),
        Err(_) => Err(format!("looking through {} took more than {} s", file.display(), LOOK_THROUGH.as_secs())),
    };
    let version = format!("SQLite {version}");
    Ok(Looked { version, schema, clock: None, is_read_only: false, no_tables_in: None, sound: Some(sound) })
}

async fn quick_check(connection: &mut SqliteConnection) -> sqlx::Result<String> {
    sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(connection).await
}

/// Whether this user may read a file. It is not opened for that: to close it would take the locks away that this process may have on it. (SQLite, "How To
/// Corrupt An SQLite Database File")
fn readable(file: &Path) -> std::io::Result<()> {
    if !std::fs::metadata(file)?.is_file() {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "expected a file, found something else"));
    }
    Ok(rustix::fs::access(file, rustix::fs::Access::READ_OK)?)
}

/// How a file is opened so that none is made or written beside it (SQLite, "Read-Only WAL-Mode Databases"): without a write-ahead log as one that does
/// not change; with one by its index, which is left as it is, too.
fn open_sqlite(file: &Path) -> Result<SqliteConnectOptions, NotLooked> {
    let beside = |ending: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name).exists()
    };
    let options = SqliteConnectOptions::new().read_only(true);
    match (beside("-wal"), beside("-shm")) {
        (false, _) => Ok(options.filename(file).immutable(true)),
        (true, true) => {
            let path = percent_encode(file.as_os_str().as_encoded_bytes(), b"/");
            Ok(options.filename(format!("file:{path}?readonly_shm=1")))
        }
        (true, false) => Err(NotLooked::NotClosed(file.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::store::open;

    /// Every file of a directory, with its bytes.
    fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    }

    async fn look_unchanged(data: &Path) -> Result<Looked, NotLooked> {
        let before = files(data);
        let looked = look_at(data, None).await;
        assert!(files(data) == before, "something was made or changed");
        looked
    }

    #[tokio::test]
    async fn a_file_is_looked_at_and_nothing_beside_it_is_made() {
        let folder = tempfile::tempdir().unwrap();
        // With what means something in a URI.
        let data = folder.path().join("da ta?%23");
        std::fs::create_dir(&data).unwrap();
        assert!(matches!(look_unchanged(&data).await, Err(NotLooked::NotThere(_))));
        let store = open(&data, None).await.unwrap();
        let is_sound = |looked: Looked| {
            assert!(matches!(looked.schema, Schema::Same(_)), "{looked:?}");
            assert_eq!(looked.sound, Some(Ok("ok".to_owned())));
        };
        is_sound(look_unchanged(&data).await.unwrap());
        // As a server leaves it that is killed: its log is there and nobody has it open.
        let killed = folder.path().join("killed");
        std::fs::create_dir(&killed).unwrap();
        for (path, bytes) in files(&data) {
            std::fs::write(killed.join(path.file_name().unwrap()), bytes).unwrap();
        }
        is_sound(look_unchanged(&killed).await.unwrap());
        std::fs::remove_file(killed.join(format!("{DATABASE_FILE}-shm"))).unwrap();
        assert!(matches!(look_unchanged(&killed).await, Err(NotLooked::NotClosed(_))));
        drop(store);
    }

    #[tokio::test]
    async fn a_damaged_file_and_what_is_no_database_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(DATABASE_FILE);
        {
            let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
            let mut connection = options.connect().await.unwrap();
            sqlx::query("CREATE TABLE t (a TEXT)").execute(&mut connection).await.unwrap();
            for _ in 0..200 {
                sqlx::query("INSERT INTO t VALUES (hex(randomblob(500)))").execute(&mut connection).await.unwrap();
            }
            connection.close().await.unwrap();
        }
        let looked = look_unchanged(folder.path()).await.unwrap();
        assert_eq!((looked.schema, looked.sound), (Schema::Empty, Some(Ok("ok".to_owned()))));
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2 / 4096 * 4096;
        bytes[middle..middle + 4096].fill(0xff);
        std::fs::write(&file, bytes).unwrap();
        let said = look_unchanged(folder.path()).await.unwrap().sound.unwrap().unwrap();
        assert_ne!(said, "ok");
        std::fs::write(&file, b"not a database, whatever its name says").unwrap();
        assert!(matches!(look_unchanged(folder.path()).await, Err(NotLooked::Failed(_))));
    }
}
