//! The harness keeps its own promises.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use gen_durable_tests::{Database, Server, ServerOptions};
use sqlx::PgPool;

async fn scalar(pool: &PgPool, statement: &'static str) -> String {
    sqlx::query_scalar(statement).fetch_one(pool).await.expect(statement)
}

/// Watches for something that happens in another process, where no hook can tell us.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not come true");
        thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn two_databases_are_isolated_on_one_server() {
    let (one, two) = tokio::join!(Database::create(), Database::create());
    sqlx::query("create table only_here (id int)").execute(&one.pool()).await.expect("the table is made");
    let exists = "select coalesce(to_regclass('only_here')::text, 'absent')";
    assert_eq!(scalar(&one.pool(), exists).await, "only_here");
    assert_eq!(scalar(&two.pool(), exists).await, "absent");
    let started = "select pg_postmaster_start_time()::text";
    assert_eq!(scalar(&one.pool(), started).await, scalar(&two.pool(), started).await);
}

#[tokio::test]
async fn url_leads_to_the_same_database() {
    let database = Database::create().await;
    let by_url = PgPool::connect(&database.url()).await.expect("the URL works");
    let name = "select current_database()::text";
    assert_eq!(scalar(&by_url, name).await, scalar(&database.pool(), name).await);
}

#[tokio::test]
async fn dropped_database_is_gone_with_its_connections() {
    let database = Database::create().await;
    let held = database.pool().acquire().await.expect("a connection");
    let name = database.options().get_database().expect("a name").to_owned();
    drop(database);
    let other = Database::create().await;
    let count = "select count(*) from pg_database where datname = $1";
    let start = Instant::now();
    loop {
        let left: i64 =
            sqlx::query_scalar(count).bind(&name).fetch_one(&other.pool()).await.expect("the count");
        if left == 0 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{name} was not dropped");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(held);
}

#[tokio::test]
async fn child_process_works_on_its_parents_database() {
    let database = Database::create().await;
    sqlx::query("create table seen (pid int)").execute(&database.pool()).await.expect("the table is made");
    let child = database.child("harness::child_writes_its_process_id").expect("this binary is known");
    let mut child = tokio::process::Command::from(child).stdout(Stdio::null()).spawn().expect("it starts");
    let id = child.id().expect("it has an id").to_string();
    assert!(child.wait().await.expect("it ends").success());
    assert_eq!(scalar(&database.pool(), "select pid::text from seen").await, id);
}

#[tokio::test]
#[ignore = "run as a child"]
async fn child_writes_its_process_id() {
    let id = std::process::id() as i32;
    let pool = Database::of_parent().pool();
    sqlx::query("insert into seen values ($1)").bind(id).execute(&pool).await.expect("the row is written");
}

#[tokio::test]
async fn owned_server_keeps_what_was_committed_across_stop_and_crash() {
    let server = Server::start(ServerOptions::fast()).expect("it starts");
    let database = Database::create_on(&server).await.expect("a database");
    let connect = || PgPool::connect_with(database.options());
    sqlx::query("create table kept as select 'yes' as it").execute(&database.pool()).await.expect("a table");

    server.stop().await.expect("it stops");
    connect().await.expect_err("it is down");
    server.start_again().await.expect("it starts again");
    assert_eq!(scalar(&connect().await.expect("it is up"), "select it from kept").await, "yes");

    server.kill_hard().await.expect("it dies");
    connect().await.expect_err("it is down");
    server.stop().await.expect_err("there is nothing to stop");
    server.start_again().await.expect("it starts again");
    assert_eq!(scalar(&connect().await.expect("it is up"), "select it from kept").await, "yes");
}

#[test]
fn dropped_server_leaves_nothing() {
    let server = Server::start(ServerOptions::fast()).expect("it starts");
    let directory = server.directory().expect("it is ours").to_owned();
    assert!(directory.join("data/postmaster.pid").exists());
    drop(server);
    assert!(!directory.exists());
}

#[test]
fn wrong_setting_fails_with_the_servers_own_words() {
    let error = Server::start(ServerOptions::fast().set("fsync", "perhaps")).expect_err("it cannot start");
    assert!(error.to_string().contains("fsync"), "{error}");
}

#[tokio::test]
async fn server_disappears_when_its_owner_is_killed() {
    let database = Database::create().await;
    let child = database.child("harness::child_owns_a_server").expect("this binary is known");
    let mut child = { child }.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let (port, directory) = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| {
            let (port, directory) = line.split_once("server: ")?.1.split_once(' ')?;
            Some((port.parse::<u16>().ok()?, PathBuf::from(directory)))
        })
        .expect("it says where its server is");
    TcpStream::connect(("127.0.0.1", port)).expect("the server runs");

    child.kill().expect("SIGKILL is sent");
    child.wait().expect("it is gone");
    eventually("the server is gone", || TcpStream::connect(("127.0.0.1", port)).is_err());
    eventually("the directory is gone", || !directory.exists());
}

#[test]
#[ignore = "run as a child"]
fn child_owns_a_server() {
    let server = Server::start(ServerOptions::fast().tcp()).expect("it starts");
    println!("server: {} {}", server.port(), server.directory().expect("it is ours").display());
    // Until killed; bounded in case the parent itself was.
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn every_test_that_the_ledger_names_exists() {
    fn sources(directory: &Path, text: &mut String) {
        for entry in
            fs::read_dir(directory).expect("a directory of sources").map(|entry| entry.unwrap().path())
        {
            if entry.is_dir() {
                sources(&entry, text);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(&entry).expect("a source"));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for directory in ["tests/src", "tests/tests", "gen-durable/src", "gen-durable-macros/src"] {
        sources(&root.join(directory), &mut text);
    }
    let ledger = fs::read_to_string(root.join("docs/races.md")).expect("the ledger");
    let names = ledger
        .lines()
        .filter(|line| line.starts_with("| "))
        .filter_map(|line| line.trim_end_matches('|').rsplit('|').next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let missing: Vec<&str> =
        names.filter(|name| !text.contains(&format!("fn {name}(")) && !name.ends_with(".rs")).collect();
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}
