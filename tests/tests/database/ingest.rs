//! The example `ingest`, killed again and again.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gen_durable_tests::Database;
use sqlx::PgPool;
use uuid::Uuid;

const FILES: u64 = 3_000;
const KILLS: u64 = 6;

/// A directory that is removed when the value drops.
struct Directory(PathBuf);

impl Directory {
    /// Files of one to three lines of two words, and some that are no plain text.
    fn create() -> Self {
        let path = env::temp_dir().join(format!("gen-durable-ingest-{}", Uuid::now_v7()));
        for n in 0..FILES {
            let below = path.join(format!("{}", n % 7));
            fs::create_dir_all(&below).expect("a directory");
            let content = "two words\n".repeat(usize::try_from(n % 3 + 1).expect("small"));
            fs::write(below.join(format!("{n}.txt")), content).expect("a file");
        }
        fs::write(path.join("binary.bin"), b"\x7fELF\0").expect("a file");
        fs::write(path.join("latin.txt"), b"caf\xe9 cr\xe8me").expect("a file");
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

/// Builds the example, as `cargo test -p` of one package does not, with the profile of this test.
fn built() -> PathBuf {
    let here = env::current_exe().expect("this binary has a path");
    let profile_directory = here.parent().and_then(Path::parent).expect("it is in `deps`");
    let release = profile_directory.file_name().is_some_and(|name| name == "release");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--package", "gen-durable-examples", "--example", "ingest"])
        .args(release.then_some("--release"))
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the example does not build");
    profile_directory.join("examples/ingest")
}

fn start(program: &Path, directory: &Directory, database: &Database) -> Child {
    Command::new(program)
        .arg(&directory.0)
        .env("DATABASE_URL", database.url())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts")
}

async fn number(pool: &PgPool, query: &'static str) -> u64 {
    let number: i64 = sqlx::query_scalar(query).fetch_one(pool).await.expect(query);
    number.cast_unsigned()
}

/// Kills the child once the query's number is large enough; says what it wrote if it ended before.
async fn kill_when(mut child: Child, query: &'static str, target: u64, pool: &PgPool) {
    let begun = Instant::now();
    // As long as the tables are missing, the number is, too.
    while sqlx::query_scalar::<_, i64>(query).fetch_one(pool).await.map_or(0, i64::cast_unsigned) < target {
        if child.try_wait().expect("it is ours").is_some() {
            panic!("it ended too soon: {}", text(&child.wait_with_output().expect("its output")));
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{query}: still less than {target}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    child.kill().expect("SIGKILL is sent");
    child.wait().expect("it is gone");
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    out + &err
}

#[tokio::test]
async fn killed_ingest_goes_on_and_counts_every_file_once() {
    let program = tokio::task::spawn_blocking(built).await.expect("the build ends");
    let database = Database::create().await;
    let pool = database.pool();
    let directory = Directory::create();

    let inserted = "select coalesce(files, 0) from ingest_runs";
    kill_when(start(&program, &directory, &database), inserted, FILES, &pool).await;
    // One file disappears before it is read: the run reports it and goes on.
    let unread = "select state ->> 'path' from gen_durable.overview where step = 'read' and status = 'ready'";
    let gone: String = sqlx::query_scalar(unread).fetch_one(&pool).await.expect("one was not read yet");
    let gone: u64 =
        gone.rsplit('/').next().and_then(|name| name.strip_suffix(".txt")?.parse().ok()).expect("ours");
    fs::remove_file(directory.file(gone)).expect("it was there");
    for kill in 1..=KILLS {
        let child = start(&program, &directory, &database);
        let stored = "select count(*) from ingest_files";
        kill_when(child, stored, kill * FILES / (KILLS + 1), &pool).await;
    }

    let last = start(&program, &directory, &database);
    let output = tokio::task::spawn_blocking(|| last.wait_with_output()).await.expect("it ends");
    let output = output.expect("its output");
    assert!(output.status.success(), "{}", text(&output));

    let counted: Vec<u64> = (0..FILES).filter(|n| *n != gone).map(|n| n % 3 + 1).collect();
    let lines = counted.iter().sum::<u64>() + 1;
    assert_eq!(number(&pool, "select count(*) from ingest_runs").await, 1);
    assert_eq!(number(&pool, "select count(*) from ingest_files").await, FILES + 2);
    assert_eq!(number(&pool, "select sum(lines)::bigint from ingest_files").await, lines);
    assert_eq!(number(&pool, "select sum(words)::bigint from ingest_files").await, lines * 2);
    assert_eq!(number(&pool, "select count(*) from ingest_files where problem is not null").await, 1);
    let instances = "select count(*) from gen_durable.overview where status = 'done'";
    assert_eq!(number(&pool, instances).await, FILES + 2, "no file has two instances");
    let told = text(&output);
    assert!(told.contains("going on: "), "{told}");
    assert!(told.contains(&format!("{gone}.txt: ")), "{told}");
    let total = told.lines().find(|line| line.starts_with("total")).expect("a summary");
    let figures: Vec<&str> = total.split_whitespace().collect();
    let bytes = counted.iter().sum::<u64>() * 10 + 10 + 5;
    let expected = [FILES + 1, bytes, lines, lines * 2, 10].map(|n| n.to_string());
    assert_eq!(figures[1..], expected, "{told}");
}

#[test]
fn ingest_says_what_it_needs() {
    let output = Command::new(built()).arg(".").env_remove("DATABASE_URL").output().expect("it starts");
    assert!(!output.status.success());
    let told = text(&output);
    assert!(told.contains("DATABASE_URL is not set") && told.contains("postgres://"), "{told}");
}
