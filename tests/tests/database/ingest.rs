//! The example `ingest`, killed again and again, on either database.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gen_durable_tests::{Database, SqliteBed};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};
use uuid::Uuid;

const FILES: u64 = 3_000;
const KILLS: u64 = 6;

/// A directory that is removed when the value drops.
struct Directory(PathBuf);

impl Directory {
    /// Files of one to three lines of two words, and some that are no plain text.
    fn create() -> Self {
        let directory = Self::empty();
        let path = &directory.0;
        for n in 0..FILES {
            let below = path.join(format!("{}", n % 7));
            fs::create_dir_all(&below).expect("a directory");
            let content = "two words\n".repeat(usize::try_from(n % 3 + 1).expect("small"));
            fs::write(below.join(format!("{n}.txt")), content).expect("a file");
        }
        fs::write(path.join("binary.bin"), b"\x7fELF\0").expect("a file");
        fs::write(path.join("latin.txt"), b"caf\xe9 cr\xe8me").expect("a file");
        directory
    }

    fn empty() -> Self {
        let path = env::temp_dir().join(format!("gen-durable-ingest-{}", Uuid::now_v7()));
        fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    fn file(&self, n: u64) -> PathBuf {
        self.0.join(format!("{}/{n}.txt", n % 7))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where a run keeps what it finds.
enum Place {
    Sqlite(SqliteBed, SqlitePool),
    Postgres(Box<Database>, PgPool),
}

impl Place {
    fn start(&self, program: &Path, directory: &Directory) -> Child {
        let mut command = Command::new(program);
        command.arg(&directory.0).stdout(Stdio::piped()).stderr(Stdio::piped());
        match self {
            Self::Sqlite(bed, _) => command.env_remove("DATABASE_URL").arg("--database").arg(bed.path()),
            Self::Postgres(database, _) => command.env("DATABASE_URL", database.url()),
        };
        command.spawn().expect("it starts")
    }

    /// What a query yields, which names the library's view `{overview}`; an error while there are no tables.
    async fn ask<T>(&self, query: &str) -> sqlx::Result<T>
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        let text = |overview| AssertSqlSafe(query.replace("{overview}", overview));
        match self {
            Self::Sqlite(_, pool) => sqlx::query_scalar(text("gen_durable_overview")).fetch_one(pool).await,
            Self::Postgres(_, pool) => sqlx::query_scalar(text("gen_durable.overview")).fetch_one(pool).await,
        }
    }

    async fn number(&self, query: &str) -> u64 {
        self.ask::<i64>(query).await.expect(query).cast_unsigned()
    }

    /// Waits until the query's number is large enough; says what the child wrote if it ended before.
    async fn wait(&self, mut child: Child, query: &str, target: u64) -> Child {
        let begun = Instant::now();
        // As long as the tables are missing, the number is, too.
        while self.ask::<i64>(query).await.map_or(0, i64::cast_unsigned) < target {
            if child.try_wait().expect("it is ours").is_some() {
                panic!("it ended too soon: {}", text(&child.wait_with_output().expect("its output")));
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{query}: still less than {target}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        child
    }
}

fn kill(mut child: Child) {
    child.kill().expect("SIGKILL is sent");
    child.wait().expect("it is gone");
}

/// The example with the profile of this test; built unless it is there and as new as its sources.
fn built() -> PathBuf {
    let here = env::current_exe().expect("this binary has a path");
    let profile_directory = here.parent().and_then(Path::parent).expect("it is in `deps`");
    let program = profile_directory.join("examples/ingest");
    if !is_fresh(&program).unwrap_or(false) {
        let release = profile_directory.file_name().is_some_and(|name| name == "release");
        let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            // All of the workspace, as its tests are built: another choice would build the dependencies once more.
            .args(["build", "--quiet", "--workspace", "--example", "ingest"])
            .args(release.then_some("--release"))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the example does not build");
    }
    program
}

/// Whether no source is newer than the program, by the list that cargo leaves beside it.
fn is_fresh(program: &Path) -> io::Result<bool> {
    let built = fs::metadata(program)?.modified()?;
    let list = fs::read_to_string(program.with_extension("d"))?;
    // A space in a name is escaped in the list; the halves of such a name are not found, which is not fresh.
    for source in list.split_whitespace().skip(1) {
        if fs::metadata(source)?.modified()? > built {
            return Ok(false);
        }
    }
    Ok(true)
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    out + &err
}

#[tokio::test]
async fn killed_ingest_goes_on_and_counts_every_file_once_on_postgres() {
    let database = Database::create().await;
    let pool = database.pool();
    goes_on_after_kills(Place::Postgres(Box::new(database), pool)).await;
}

#[tokio::test]
async fn killed_ingest_goes_on_and_counts_every_file_once_on_sqlite() {
    let bed = SqliteBed::create().await;
    let pool = bed.pool();
    goes_on_after_kills(Place::Sqlite(bed, pool)).await;
}

async fn goes_on_after_kills(place: Place) {
    let program = tokio::task::spawn_blocking(built).await.expect("the build ends");
    let directory = Directory::create();

    let inserted = "select coalesce(files, 0) from ingest_runs";
    kill(place.wait(place.start(&program, &directory), inserted, FILES).await);
    // One file disappears before it is read: the run reports it and goes on.
    let unread = "select state ->> 'path' from {overview} where step = 'read' and status = 'ready' \
                  and state ->> 'path' like '%.txt' limit 1";
    let gone: String = place.ask(unread).await.expect("one was not read yet");
    let gone: u64 =
        gone.rsplit('/').next().and_then(|name| name.strip_suffix(".txt")?.parse().ok()).expect("ours");
    fs::remove_file(directory.file(gone)).expect("it was there");
    let stored = "select count(*) from ingest_files";
    for time in 1..=KILLS {
        let child = place.start(&program, &directory);
        let child = place.wait(child, stored, time * FILES / (KILLS + 1)).await;
        if time < KILLS {
            kill(child);
        } else {
            interrupt(child);
        }
    }

    let last = place.start(&program, &directory);
    let output = tokio::task::spawn_blocking(|| last.wait_with_output()).await.expect("it ends");
    let output = output.expect("its output");
    assert!(output.status.success(), "{}", text(&output));

    let counted: Vec<u64> = (0..FILES).filter(|n| *n != gone).map(|n| n % 3 + 1).collect();
    let lines = counted.iter().sum::<u64>() + 1;
    assert_eq!(place.number("select count(*) from ingest_runs").await, 1);
    assert_eq!(place.number(stored).await, FILES + 2);
    assert_eq!(place.number("select cast(sum(lines) as bigint) from ingest_files").await, lines);
    assert_eq!(place.number("select cast(sum(words) as bigint) from ingest_files").await, lines * 2);
    assert_eq!(place.number("select count(*) from ingest_files where problem is not null").await, 1);
    let instances = "select count(*) from {overview} where status = 'done'";
    assert_eq!(place.number(instances).await, FILES + 2, "no file has two instances");
    let told = text(&output);
    assert!(told.contains("going on: "), "{told}");
    assert!(told.contains(&format!("{gone}.txt: ")), "{told}");
    let total = told.lines().find(|line| line.starts_with("total")).expect("a summary");
    let figures: Vec<&str> = total.split_whitespace().collect();
    let bytes = counted.iter().sum::<u64>() * 10 + 10 + 5;
    let expected = [FILES + 1, bytes, lines, lines * 2, 10].map(|n| n.to_string());
    assert_eq!(figures[1..], expected, "{told}");
}

/// Ctrl-C: it stops by itself, and says how to go on.
fn interrupt(child: Child) {
    let sent = Command::new("kill").arg("-INT").arg(child.id().to_string()).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill -INT works");
    let output = child.wait_with_output().expect("its output");
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "it ends by itself: {told}");
    assert!(told.contains("interrupted: start it again"), "{told}");
}

#[test]
fn ingest_needs_no_set_up_and_leaves_its_own_file_out() {
    let directory = Directory::empty();
    fs::write(directory.0.join("a.txt"), "two words\n").expect("a file");
    let run = || {
        let mut command = Command::new(built());
        command.arg(".").env_remove("DATABASE_URL").current_dir(&directory.0);
        command.output().expect("it starts")
    };
    for _ in 0..2 {
        let output = run();
        let told = text(&output);
        assert!(output.status.success(), "{told}");
        assert!(told.contains("/ingest.db"), "it says where the file is: {told}");
        let total = told.lines().find(|line| line.starts_with("total")).expect("a summary");
        assert_eq!(total.split_whitespace().collect::<Vec<_>>()[1..], ["1", "10", "1", "2", "9"], "{told}");
    }
    assert!(directory.0.join("ingest.db").exists());
}

#[test]
fn ingest_says_what_it_needs() {
    let output = Command::new(built()).output().expect("it starts");
    assert!(!output.status.success());
    let told = text(&output);
    assert!(told.contains("<directory>") && told.contains("DATABASE_URL"), "{told}");
}
