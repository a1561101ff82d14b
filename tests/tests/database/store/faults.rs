//! Connections that are cut, hang, or are left in the middle of a call.

use std::sync::Arc;
use std::time::Duration;

use gen_durable::store::{ClaimRequest, Poke, Start, Store, StoreError};
use gen_durable_tests::{Database, Server, ServerOptions};
use sqlx::postgres::PgPoolOptions;
use tokio::task::spawn_blocking;

use super::setup::{DONE, Fixture, QUEUE, done, store};

/// R10: the future of a call is dropped while its statement runs.
#[tokio::test]
async fn connection_of_a_dropped_call_is_closed_and_the_next_call_works() {
    let f = Fixture::new().await;
    f.insert(1).await;
    // The claim waits behind this lock, in the middle of its statement.
    let mut blocker = f.pool.begin().await.expect("it begins");
    sqlx::query("lock table gen_durable.instances in access exclusive mode")
        .execute(&mut *blocker)
        .await
        .expect("it is locked");
    let dropped = tokio::time::timeout(Duration::from_millis(100), f.claim(1)).await;
    dropped.expect_err("it waits");
    let insert = f.instance();
    let instances = [insert.clone()];
    let dropped = tokio::time::timeout(Duration::from_millis(100), f.store.insert(&instances)).await;
    dropped.expect_err("it waits");
    blocker.rollback().await.expect("it gives way");

    // The server may have finished the dropped statements, or not. What a claim took without telling stays
    // taken: the worker's heartbeat finds rows that it does not know.
    let busy = "select count(*) from pg_stat_activity
        where state <> 'idle' and pid <> pg_backend_pid() and datname = current_database()";
    while sqlx::query_scalar::<_, i64>(busy).fetch_one(&f.pool).await.expect("the count") > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let held = f.store.held(f.worker).await.expect("held");
    f.store.release(f.worker, &held).await.expect("it releases");
    f.store.insert(&instances).await.expect("the dropped insert is repeated");
    assert_eq!(f.claim_as(f.worker, 2, 10).await.len(), 2);
}

/// R06, R12: everything works again after a crash of the server, at the first call, but for claims at the second.
#[tokio::test]
async fn first_call_after_a_restart_of_the_server_works() {
    let server =
        spawn_blocking(|| Server::start(ServerOptions::fast())).await.expect("a thread").expect("it starts");
    let f = Fixture::on(Database::create_on(&server).await.expect("a database")).await;
    let row = f.claimed().await;
    f.store.beat(f.worker).await.expect("it beats");
    // Claims commit asynchronously; what commits after them brings them to the disk.
    f.insert(1).await;
    let mut listener = f.store.listen().await.expect("it listens").expect("there are others");

    server.kill_hard().await.expect("it dies");
    listener.next().await.expect_err("the connection is lost");
    let error = f.store.beat(f.worker).await.expect_err("there is no server");
    assert!(matches!(error, StoreError::Unavailable(_)));
    let error = f.store.listen().await.err().expect("there is no server");
    assert!(!error.is_rejection());
    server.start_again().await.expect("it starts");

    assert!(f.store.beat(f.worker).await.expect("it beats").alive);
    assert_eq!(f.flush(&[done(&row)]).await, [DONE]);
    f.insert(1).await;
    // Whoever claims must know that an answer may have been lost, so this one is not repeated silently.
    let queue = QUEUE.into();
    let request = ClaimRequest {
        worker: f.worker,
        claim: 2,
        queue: &queue,
        machines: &[f.machine],
        limit: 10,
        alone: true,
    };
    f.store.claim(&request).await.expect_err("its connection is broken");
    assert_eq!(f.claim_as(f.worker, 3, 10).await.len(), 2);
    let mut listener = f.store.listen().await.expect("it listens").expect("there are others");
    f.store.notify(&[Poke::Queue(QUEUE.into())]).await.expect("it tells");
    assert_eq!(listener.next().await.expect("a poke"), Poke::Queue(QUEUE.into()));
}

/// R12: a standby, or a disk that is nearly full.
#[tokio::test]
async fn read_only_database_is_unavailable_and_not_at_fault_with_the_data() {
    let f = Fixture::new().await;
    let options = f.database.options().options([("default_transaction_read_only", "on")]);
    let pool = PgPoolOptions::new().connect_lazy_with(options);
    let standby = gen_durable::store::postgres::PostgresStore::new(pool.clone(), Default::default(), None);
    let error = standby.insert(&[f.instance()]).await.expect_err("it is read-only");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    let text = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(text.contains("insert") && text.contains("25006"), "{text}");
    pool.set_connect_options(f.database.options());
    standby.insert(&[f.instance()]).await.expect("the next connection reaches the primary");
}

/// The heartbeat's thread has a runtime of its own, and others may call the same methods.
#[tokio::test]
async fn store_works_from_runtimes_that_come_and_go() {
    let f = Arc::new(Fixture::new().await);
    f.store.beat(f.worker).await.expect("it beats");
    for _ in 0..3 {
        let lent = Arc::clone(&f);
        let beating = spawn_blocking(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async { lent.store.beat(lent.worker).await })
        });
        assert!(beating.await.expect("a thread").expect("it beats").alive);
        assert!(f.store.beat(f.worker).await.expect("it beats").alive);
    }
}

/// A listener outlives its runtime without a panic.
#[test]
fn listener_may_be_dropped_outside_of_any_runtime() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (database, listener) = runtime.block_on(async {
        let f = Fixture::new().await;
        (Arc::clone(&f.database), f.store.listen().await.expect("it listens"))
    });
    drop(runtime);
    drop(listener);
    drop(database);
}

/// Connections are the engine's own: a pool with none to spare is not in the way.
#[tokio::test]
async fn exhausted_pool_of_the_user_holds_up_nothing() {
    let f = Fixture::new().await;
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(f.database.options());
    let _taken = pool.acquire().await.expect("the only one");
    let store = gen_durable::store::postgres::PostgresStore::new(pool, Default::default(), None);
    let new = gen_durable::store::NewInstance { start: Start::After(Duration::ZERO), ..f.instance() };
    store.insert(&[new]).await.expect("it is inserted");
    assert_eq!(f.claim_with(&store, f.worker, 1, 1).await.len(), 1);
}

/// R10: more calls at once than connections.
#[tokio::test]
async fn many_calls_at_once_share_the_few_connections() {
    let f = Fixture::new().await;
    let other = store(&f.database);
    let calls = (0..100).map(|_| other.workers());
    for workers in futures_util::future::join_all(calls).await {
        assert_eq!(workers.expect("it answers").len(), 1);
    }
    let connections = "select count(*) from pg_stat_activity
        where query like '-- gen-durable: workers%' and datname = current_database()";
    let count: i64 = sqlx::query_scalar(connections).fetch_one(&f.pool).await.expect("the count");
    assert!(count <= 4, "{count} connections");
}
