//! Hot statements stay index-driven whatever the planner believes.

use std::time::{Duration, Instant};

use gen_durable::store::{Claimed, Commit, Store};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, SqlSafeStr};

use super::setup::{AHEAD, DONE, Fixture, done, next};

const ROWS: u32 = 200_000;

/// Arguments for one execution of each hot statement.
const HOT: [(&str, &str, &[&str]); 8] = [
    (
        "claim",
        "1, 1, 'default', '{1}', 100, 2, 1, 1, false, 1000000",
        // How far back to look is judged within the index.
        &["instances_pick", "(eligible_at >= COALESCE(", "Tid Scan"],
    ),
    (
        "flush",
        "1, true, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'",
        &["instances_pkey", "Tid Scan"],
    ),
    ("settle", "1, '{}', '{}', '{}'", &["instances_pkey"]),
    ("release", "1, '{}', '{}', '{}'", &["instances_pkey", "Tid Scan"]),
    ("promote", "100", &["instances_due", "Tid Scan"]),
    ("reclaim", "100", &["instances_claims", "Tid Scan"]),
    ("sweep_instances", "0, 100", &["instances_sweep", "Tid Scan"]),
    ("watch", "'{}'", &["instances_pkey", "Tid Scan"]),
];

/// A connection with every statement prepared and all that speaks for bad plans.
pub(super) async fn prepared(f: &Fixture) -> PgConnection {
    let mut connection = PgConnection::connect_with(&f.database.options()).await.expect("it connects");
    let hostile = "set plan_cache_mode = force_generic_plan; set jit = on; set jit_above_cost = 100000;";
    connection.execute(hostile).await.expect("the settings");
    for (name, text) in f.store.statements() {
        let text = format!("prepare {name} as {}", text.as_str());
        connection.execute(AssertSqlSafe(text)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    connection
}

pub(super) async fn plan(connection: &mut PgConnection, name: &str, arguments: &str) -> String {
    let explain = AssertSqlSafe(format!("explain execute {name}({arguments})"));
    let lines = sqlx::raw_sql(explain).fetch_all(connection).await.expect(name);
    lines.iter().map(|line| line.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

async fn assert_driven_by_indexes(connection: &mut PgConnection, when: &str) {
    for (name, arguments, expected) in HOT {
        let plan = plan(connection, name, arguments).await;
        for part in expected {
            assert!(plan.contains(part), "{when}: {name} does not use {part}:\n{plan}");
        }
        for part in ["Seq Scan on instances", "Seq Scan on signals", "Bitmap Heap Scan on instances", "JIT"] {
            assert!(!plan.contains(part), "{when}: {name} uses {part}:\n{plan}");
        }
        // The claim sorts what it took, and nothing else does.
        let sorts = plan.matches("Sort  (").count();
        assert_eq!(sorts, usize::from(name == "claim"), "{when}: {name} sorts:\n{plan}");
    }
}

async fn fill(f: &Fixture, status: &str) {
    let text = format!(
        "insert into gen_durable.instances
            (id, machine_id, step, state, queue, status, eligible_at, claimed_by, claim, finished_at)
        select gen_random_uuid(), 1, 'first', '{{}}', 'default', '{status}', now() - interval '1 minute', 1, 1, now()
        from generate_series(1, {ROWS})"
    );
    f.pool.execute(AssertSqlSafe(text)).await.expect(status);
}

#[tokio::test]
async fn every_statement_prepares_on_the_migrated_schema() {
    let f = Fixture::new().await;
    let mut connection = PgConnection::connect_with(&f.database.options()).await.expect("it connects");
    for (name, text) in f.store.statements() {
        let prepared = connection.prepare(text.as_str().to_owned().leak().into_sql_str()).await;
        prepared.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// R48
#[tokio::test]
async fn plans_are_driven_by_indexes_right_after_a_bulk_load() {
    for status in ["ready", "scheduled", "executing", "done"] {
        let f = Fixture::new().await;
        f.pool
            .execute("alter table gen_durable.instances set (autovacuum_enabled = off)")
            .await
            .expect("it is off");
        // Prepared, and planned, while the table was empty: a connection keeps such a plan.
        let mut early = prepared(&f).await;
        assert_driven_by_indexes(&mut early, "empty").await;
        f.pool.execute("vacuum analyze gen_durable.instances").await.expect("it is vacuumed");
        let mut vacuumed = prepared(&f).await;
        assert_driven_by_indexes(&mut vacuumed, "empty and vacuumed").await;

        fill(&f, status).await;
        assert_driven_by_indexes(&mut early, &format!("{status}, planned when empty")).await;
        assert_driven_by_indexes(&mut vacuumed, &format!("{status}, planned when vacuumed")).await;
        let mut late = prepared(&f).await;
        assert_driven_by_indexes(&mut late, &format!("{status}, planned when full")).await;
        f.pool.execute("analyze gen_durable.instances").await.expect("it is analyzed");
        assert_driven_by_indexes(&mut late, &format!("{status}, analyzed")).await;
    }
}

/// R48: the table has no analyze, and the plan was made without one.
#[tokio::test]
async fn flush_of_a_small_batch_touches_little_with_many_rows_executing() {
    let f = Fixture::new().await;
    fill(&f, "executing").await;
    let mut connection = prepared(&f).await;
    let ids = "(select array_agg(id) from (select id from gen_durable.instances limit 10) i)";
    let ids: String = sqlx::query_scalar(AssertSqlSafe(format!("select {ids}::text")))
        .fetch_one(&f.pool)
        .await
        .expect("ids");
    let ten = |value: &str| format!("'{{{}}}'", [value; 10].join(","));
    let arguments = format!(
        "1, false, '{ids}', {}, {}, {}, {}, {}, {}, {}, {}",
        ten("1"),
        ten("0"),
        ten("d"),
        ten("null"),
        ten("1"),
        ten("null"),
        ten("0"),
        ten("false")
    );
    let explain = AssertSqlSafe(format!("explain (analyze, buffers, costs off) execute flush({arguments})"));
    let lines = sqlx::raw_sql(explain).fetch_all(&mut connection).await.expect("it flushes");
    let plan = lines.iter().map(|line| line.get::<String, _>(0)).collect::<Vec<_>>().join("\n");
    let pages = plan.split("shared hit=").nth(1).and_then(|rest| rest.split_whitespace().next());
    let pages: u32 = pages.and_then(|pages| pages.parse().ok()).expect("the pages");
    assert!(pages < 500, "{pages} pages for ten rows:\n{plan}");
}

/// R48: what runs ahead rewrites no index.
#[tokio::test]
async fn a_next_that_keeps_its_claim_is_a_heap_only_update() {
    let f = Fixture::new().await;
    // So few that all their versions fit on a page.
    f.insert(5).await;
    let mut rows = f.claim(5).await;
    rows.sort_unstable_by_key(|row| row.id);
    for round in 0..4 {
        let ahead = |row: &Claimed| Commit { keeps_claim: true, ..next(row) };
        let commits: Vec<_> = rows.iter().map(ahead).collect();
        assert_eq!(f.flush(&commits).await, [AHEAD; 5], "round {round}");
        rows.iter_mut().for_each(|row| row.revision += 1);
    }
    assert_eq!(f.store.held(f.worker).await.expect("held").len(), 5);
    let count = "select n_tup_hot_upd from pg_stat_user_tables where relname = 'instances'";
    let began = Instant::now();
    loop {
        // Statistics arrive when a connection has been idle for a while.
        let hot: i64 = sqlx::query_scalar(count).fetch_one(&f.pool).await.expect("the statistics");
        if hot >= 20 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{hot} heap-only updates");
        f.store.promote(1).await.expect("it answers");
        f.flush(&[done(&rows[0])]).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A plan is made once a session, and is the one that the tests above read.
#[tokio::test]
async fn sessions_of_the_engine_plan_generically_and_compile_nothing() {
    let f = Fixture::new().await;
    f.pool
        .execute(
            "create table seen (settings text);
             create function see() returns trigger language plpgsql as $$ begin
                 insert into seen select current_setting('plan_cache_mode') || ' ' || current_setting('jit');
                 return null;
             end $$;
             create trigger see after insert or update on gen_durable.instances
                 for each statement execute function see();",
        )
        .await
        .expect("a trigger");
    // An insert, a claim and an outcome, each on a connection of its own.
    let row = f.claimed().await;
    assert_eq!(f.flush(&[done(&row)]).await, [DONE]);
    let seen: Vec<String> = sqlx::query_scalar("select distinct settings from seen")
        .fetch_all(&f.pool)
        .await
        .expect("the settings");
    assert_eq!(seen, ["force_generic_plan off"]);
}
