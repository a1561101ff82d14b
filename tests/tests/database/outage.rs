//! Databases that stop, crash, refuse writes, or cut connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gen_durable::{Engine, Event, EventStream, InstanceId, Notice};
use gen_durable_tests::{Bed, Database, Server, ServerOptions, until};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::sync::Semaphore;

use crate::fleet::errand::{Does, Run};
use crate::fleet::{self, First, Node, SOON, number, starts};

const LEASE: Duration = Duration::from_millis(1500);
const HEARTBEAT: Duration = Duration::from_millis(250);

/// A server of its own, with a journaled database.
async fn own_server() -> (Server, Bed) {
    let server = tokio::task::spawn_blocking(|| Server::start(ServerOptions::fast())).await.unwrap().unwrap();
    let bed = fleet::journaled(Database::create_on(&server).await.unwrap()).await;
    (server, bed)
}

/// Two nodes in this process.
async fn two_nodes(bed: &Bed, slots: u32, gate: Option<&Arc<Semaphore>>) -> [Engine; 2] {
    let start = async |name: &str| {
        let node = Node::named(name).slots(slots).lease(LEASE, HEARTBEAT);
        node.engine(bed, gate.cloned()).start().await.unwrap()
    };
    [start("a").await, start("b").await]
}

async fn dead(pool: &PgPool) -> i64 {
    // Those that are shut down count as dead, too.
    number(pool, "select count(*) from gen_durable.workers where dead and node in ('a', 'b')").await
}

async fn committed(pool: &PgPool) -> i64 {
    number(pool, "select coalesce(max(seq), 0) from journal").await
}

async fn shut_down(engines: [Engine; 2]) {
    for engine in engines {
        engine.shutdown().await;
    }
}

/// Holds `count` steps on two nodes, and returns them once all run.
async fn held(bed: &Bed, engines: &[Engine; 2], count: usize) -> Vec<InstanceId> {
    let ids = engines[0].insert_all((0..count).map(|_| Run { does: Does::Hold })).await.unwrap();
    let all = i64::try_from(count).unwrap();
    until("all run", || async { number(&bed.pool, "select count(*) from starts").await == all }).await;
    ids
}

async fn check_held(bed: &Bed, ids: &[InstanceId]) {
    until("all are done", || async { fleet::unfinished(&bed.pool).await == 0 }).await;
    for id in ids {
        assert_eq!(starts(&bed.pool, *id).await, 1, "no step runs twice");
    }
    let done = "select count(*) from gen_durable.instances where status = 'done' and attempt = 0";
    assert_eq!(number(&bed.pool, done).await, i64::try_from(ids.len()).unwrap());
    assert_eq!(dead(&bed.pool).await, 0, "nobody is declared dead");
}

/// R12: the database is away for two leases.
#[tokio::test]
async fn a_database_stopped_for_two_leases_makes_nobody_dead_and_runs_nothing_twice() {
    let (server, bed) = own_server().await;
    let gate = Arc::new(Semaphore::new(0));
    let engines = two_nodes(&bed, 10, Some(&gate)).await;
    let ids = held(&bed, &engines, 20).await;
    server.stop().await.unwrap();
    // Half of the outcomes are decided while there is nobody to commit them.
    gate.add_permits(10);
    tokio::time::sleep(LEASE * 2).await;
    server.start_again().await.unwrap();
    until("what was decided is committed", || async { committed(&bed.pool).await == 10 }).await;
    gate.add_permits(10);
    check_held(&bed, &ids).await;
    shut_down(engines).await;
}

/// R12: the server is a standby for two leases, then a primary again.
#[tokio::test]
async fn a_database_read_only_for_two_leases_makes_nobody_dead_and_runs_nothing_twice() {
    let (_server, bed) = own_server().await;
    let gate = Arc::new(Semaphore::new(0));
    let engines = two_nodes(&bed, 10, Some(&gate)).await;
    let ids = held(&bed, &engines, 20).await;
    let read_only = async |setting: &str| {
        let set = format!("alter system set default_transaction_read_only = {setting}");
        sqlx::query(AssertSqlSafe(set)).execute(&bed.pool).await.unwrap();
        sqlx::query("select pg_reload_conf()").execute(&bed.pool).await.unwrap();
        until("it is reloaded", || async {
            let now: String =
                sqlx::query_scalar("show default_transaction_read_only").fetch_one(&bed.pool).await.unwrap();
            now == setting
        })
        .await;
    };
    let mut events = engines[0].events();
    read_only("on").await;
    gate.add_permits(10);
    heard(
        &mut events,
        |event| matches!(event, Event::StoreUnavailable { error, .. } if error.contains("25006")),
    )
    .await;
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(committed(&bed.pool).await, 0);
    read_only("off").await;
    heard(&mut events, |event| matches!(event, Event::StoreBack { .. })).await;
    gate.add_permits(10);
    check_held(&bed, &ids).await;
    shut_down(engines).await;
}

/// Waits for an event.
async fn heard(events: &mut EventStream, wanted: impl Fn(&Event) -> bool) {
    let listening = async {
        while let Some(notice) = events.next().await {
            if let Notice::Event(event) = notice
                && wanted(&event)
            {
                return;
            }
        }
        panic!("the engine is gone")
    };
    tokio::time::timeout(SOON, listening).await.expect("it is told");
}

/// R12: crashes of the server under load lose nothing that was acknowledged, and no engine needs a restart.
#[tokio::test]
async fn a_database_that_crashes_under_load_loses_nothing_that_was_committed() {
    let (server, bed) = own_server().await;
    let outcomes = fleet::insert_legs(&bed, 1_000).await;
    let engines = two_nodes(&bed, 10, None).await;
    // Inserts go on meanwhile; some fail, and may have happened even so.
    let stop = Arc::new(AtomicBool::new(false));
    let inserting = {
        let (engine, stop) = (engines[0].clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                match engine.insert(First { run: 0 }).await {
                    Ok(handle) => acknowledged.push(handle.id().as_uuid()),
                    // The database is away.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
            acknowledged
        })
    };
    for crash in 1..=3 {
        until("it gets on", || async { committed(&bed.pool).await >= crash * outcomes / 5 }).await;
        server.kill_hard().await.unwrap();
        server.start_again().await.unwrap();
        // The pool of the test finds its connections broken, too.
        until("it is up", || async { sqlx::query("select").execute(&bed.pool).await.is_ok() }).await;
    }
    stop.store(true, Ordering::SeqCst);
    let acknowledged = inserting.await.unwrap();
    until("all are done", || async { fleet::unfinished(&bed.pool).await == 0 }).await;
    let there: i64 = sqlx::query_scalar("select count(*) from gen_durable.instances where id = any($1)")
        .bind(&acknowledged)
        .fetch_one(&bed.pool)
        .await
        .unwrap();
    assert_eq!(there, i64::try_from(acknowledged.len()).unwrap(), "acknowledged inserts are there");
    let all = number(&bed.pool, "select count(*) from gen_durable.instances").await;
    assert!(all >= outcomes / 5 + there);
    fleet::check_legs(&bed.pool, all * 5).await;
    assert_eq!(dead(&bed.pool).await, 0, "nobody is declared dead");
    println!("3 crashes of the server, {there} inserts were acknowledged meanwhile, {all} instances done");
    shut_down(engines).await;
}

/// R12, R13: connections are cut again and again under load.
#[tokio::test]
async fn backends_terminated_under_load_cost_nothing_but_time() {
    let bed = fleet::bed().await;
    let outcomes = fleet::insert_legs(&bed, 1_000).await;
    let engines = two_nodes(&bed, 10, None).await;
    let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
               where datname = current_database() and pid <> pg_backend_pid() and application_name <> 'test'";
    let options = bed.database.options().application_name("test");
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let mut terminated = 0;
    for time in 1..=20 {
        until("it gets on", || async { committed(&pool).await >= time * outcomes / 25 }).await;
        terminated += number(&pool, cut).await;
    }
    until("all are done", || async { fleet::unfinished(&pool).await == 0 }).await;
    fleet::check_legs(&pool, outcomes).await;
    assert_eq!(
        number(&pool, "select max(crashes)::bigint from journal").await,
        0,
        "lost claims are uncharged"
    );
    assert_eq!(dead(&pool).await, 0, "nobody is declared dead");
    println!("{terminated} backends were terminated");
    shut_down(engines).await;
}

/// R04: whatever a pass of the reaper meets, a later one takes up.
#[tokio::test]
async fn rows_of_a_reaper_pass_that_failed_are_taken_back_by_a_later_one() {
    let bed = fleet::bed().await;
    fleet::insert_legs(&bed, 2_500).await;
    let faults = "
        create sequence faults;
        create function fail() returns trigger language plpgsql as $$
        declare fault bigint;
        begin
            -- Some way into the pass.
            fault := nextval('public.faults');
            if fault = 100 then raise exception 'for a test' using errcode = 'serialization_failure'; end if;
            if fault = 300 then raise exception 'for a test' using errcode = 'deadlock_detected'; end if;
            if fault = 700 then perform pg_terminate_backend(pg_backend_pid()); end if;
            if fault = 2900 then raise exception 'for a test' using errcode = 'query_canceled'; end if;
            return new;
        end
        $$;
        update gen_durable.instances set status = 'executing', claimed_by = 1000000, claim = 1;
        create trigger fail before update on gen_durable.instances for each row
            when (old.status = 'executing' and new.status = 'ready') execute function fail();
    ";
    sqlx::raw_sql(faults).execute(&bed.pool).await.unwrap();
    let reaper = bed.engine().without_queues().reaper(Duration::from_millis(100)).start().await.unwrap();
    let back =
        "select count(*) from gen_durable.instances where status = 'ready' and crashes = 1 and attempt = 1";
    until("all are back", || async { number(&bed.pool, back).await == 2_500 }).await;
    let met = number(&bed.pool, "select last_value from faults").await;
    assert!(met >= 2_900, "{met}");
    reaper.shutdown().await;
}

/// R12.
#[tokio::test]
async fn an_engine_says_at_start_that_the_database_cannot_be_reached() {
    let (server, bed) = own_server().await;
    server.stop().await.unwrap();
    let error = bed.engine().start().await.expect_err("there is no database");
    let cause = std::error::Error::source(&error).and_then(std::error::Error::source).unwrap().to_string();
    assert_eq!(error.to_string(), "reading the schema's version failed");
    assert!(cause.starts_with("statement `connect`: "), "{cause}");
    // Once it is there, the same name may start.
    server.start_again().await.unwrap();
    let engine = bed.engine().start().await.unwrap();
    engine.shutdown().await;
}

/// R52: a shutdown without a database ends in time.
#[tokio::test]
async fn an_engine_shuts_down_in_time_without_its_database() {
    let (server, bed) = own_server().await;
    let gate = Arc::new(Semaphore::new(0));
    let node = Node::named("a").slots(2).lease(LEASE, HEARTBEAT);
    let engine =
        node.engine(&bed, Some(gate)).drain_timeout(Duration::from_millis(500)).start().await.unwrap();
    engine.insert_all((0..10).map(|_| Run { does: Does::Hold })).await.unwrap();
    until("two run", || async { number(&bed.pool, "select count(*) from starts").await == 2 }).await;
    server.stop().await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), engine.shutdown()).await.expect("it ends");
    drop(engine);
    server.start_again().await.unwrap();
    let other = node.engine(&bed, None).start().await.unwrap();
    until("the rows come back with the end of the lease", || async {
        number(&bed.pool, "select count(*) from starts").await > 2
    })
    .await;
    other.shutdown().await;
}
