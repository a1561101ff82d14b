//! The example `ingest`, killed again and again, on either database.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::example::{Place, built, kill, send, text};

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

/// Waits until the query's number is large enough; says what the child wrote if it ended before.
async fn wait(place: &Place, mut child: Child, query: &str, target: u64) -> Child {
    let begun = Instant::now();
    // As long as the tables are missing, the number is, too.
    while place.ask::<i64>(query).await.map_or(0, i64::cast_unsigned) < target {
        if child.try_wait().expect("it is ours").is_some() {
            panic!("it ended too soon: {}", text(&child.wait_with_output().expect("its output")));
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{query}: still less than {target}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    child
}

#[tokio::test]
async fn killed_ingest_goes_on_and_counts_every_file_once_on_postgres() {
    goes_on_after_kills(Place::on_postgres().await).await;
}

#[tokio::test]
async fn killed_ingest_goes_on_and_counts_every_file_once_on_sqlite() {
    goes_on_after_kills(Place::on_sqlite().await).await;
}

async fn goes_on_after_kills(place: Place) {
    let program = tokio::task::spawn_blocking(|| built("ingest")).await.expect("the build ends");
    let directory = Directory::create();
    let start = || place.command(&program).arg(&directory.0).spawn().expect("it starts");

    let inserted = "select coalesce(files, 0) from ingest_runs";
    kill(wait(&place, start(), inserted, FILES).await);
    // One file disappears before it is read: the run reports it and goes on.
    let unread = "select state ->> 'path' from {overview} where step = 'read' and status = 'ready' \
                  and state ->> 'path' like '%/_/%.txt' limit 1";
    let gone: String = place.ask(unread).await.expect("one was not read yet");
    let gone: u64 =
        gone.rsplit('/').next().and_then(|name| name.strip_suffix(".txt")?.parse().ok()).expect("ours");
    fs::remove_file(directory.file(gone)).expect("it was there");
    let stored = "select count(*) from ingest_files";
    for time in 1..=KILLS {
        let child = wait(&place, start(), stored, time * FILES / (KILLS + 1)).await;
        if time < KILLS {
            kill(child);
        } else {
            interrupt(child);
        }
    }

    let last = start();
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
    send("INT", &child);
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
        let mut command = Command::new(built("ingest"));
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
    let output = Command::new(built("ingest")).output().expect("it starts");
    assert!(!output.status.success());
    let told = text(&output);
    assert!(told.contains("<directory>") && told.contains("DATABASE_URL"), "{told}");
}
