//! Statements that reach beyond rows stay index-driven, too, whatever the planner believes.

use sqlx::{AssertSqlSafe, Executor, PgConnection};

use super::plans::{plan, prepared};
use super::setup::Fixture;

const ROWS: u32 = 100_000;

const ID: &str = "'01890000-0000-7000-8000-000000000000'";

/// Arguments for one execution of each statement, and indexes that it must use.
fn statements() -> Vec<(&'static str, String, &'static [&'static str])> {
    let arrays = |count: usize| vec!["'{}'"; count].join(", ");
    vec![
        ("coordinate", format!("1, true, {}", arrays(15)), &["instances_pkey", "signals_inbox", "Tid Scan"]),
        ("signal", arrays(6), &["instances_pkey", "instances_address"]),
        ("signal_in_transaction", arrays(6), &["instances_pkey", "instances_address"]),
        ("inbox", format!("{}, 1000", arrays(1)), &["instances_pkey", "signals_inbox"]),
        ("tell_parents", arrays(1), &["instances_pkey", "Tid Scan"]),
        ("cancel", format!("{ID}, true"), &["instances_pkey", "signals_inbox"]),
        ("cascade", "100".into(), &["instances_cascades", "instances_live_children"]),
        ("unjoined", "100".into(), &["instances_unjoined"]),
        ("retry", ID.into(), &["instances_pkey"]),
        ("children", format!("{ID}, 1, 'machine', null, 1000"), &["instances_children"]),
        ("holders", arrays(3), &["instances_"]),
        ("find", "'machine', 'k'".into(), &["instances_address"]),
    ]
}

async fn assert_driven_by_indexes(connection: &mut PgConnection, when: &str) {
    for (name, arguments, expected) in statements() {
        let plan = plan(connection, name, &arguments).await;
        for part in expected {
            assert!(plan.contains(part), "{when}: {name} does not use {part}:\n{plan}");
        }
        assert_scans_no_table(&plan, name, when);
    }
}

/// Which index is the best, a planner that knows the table may know better: one that it knows to be empty, for example.
async fn assert_scans_no_tables(connection: &mut PgConnection, when: &str) {
    for (name, arguments, _) in statements() {
        assert_scans_no_table(&plan(connection, name, &arguments).await, name, when);
    }
}

fn assert_scans_no_table(plan: &str, name: &str, when: &str) {
    for part in ["Seq Scan on instances", "Seq Scan on signals", "JIT"] {
        assert!(!plan.contains(part), "{when}: {name} uses {part}:\n{plan}");
    }
}

/// Many instances, each with a signal, a key and a parent.
async fn fill(f: &Fixture, status: &str) {
    let text = format!(
        "with new as (
            insert into gen_durable.instances
                (id, machine_id, step, state, queue, status, eligible_at, claimed_by, claim, finished_at, inbox,
                awaits, family, correlation_key, key_scope, parent_id, parent_round, joined, round)
            select gen_random_uuid(), 1, 'first', '{{}}', 'default', '{status}', 'infinity', 1, 1, now(), 1,
                '{{a}}', 'machine', n::text, 'live', gen_random_uuid(), 1, true, 1
            from generate_series(1, {ROWS}) n
            returning id
        )
        insert into gen_durable.signals (instance_id, name, payload) select id, 'a', 'null' from new"
    );
    f.pool.execute(AssertSqlSafe(text)).await.expect("it is filled");
}

/// R48
#[tokio::test]
async fn what_reaches_beyond_rows_is_driven_by_indexes_right_after_a_bulk_load() {
    for status in ["waiting", "joining", "executing", "cancelled"] {
        let f = Fixture::new().await;
        for table in ["instances", "signals"] {
            let off = format!("alter table gen_durable.{table} set (autovacuum_enabled = off)");
            f.pool.execute(AssertSqlSafe(off)).await.expect("it is off");
        }
        let mut early = prepared(&f).await;
        assert_driven_by_indexes(&mut early, "empty").await;
        fill(&f, status).await;
        assert_driven_by_indexes(&mut early, &format!("{status}, planned when empty")).await;
        let mut late = prepared(&f).await;
        assert_driven_by_indexes(&mut late, &format!("{status}, planned when full")).await;
        f.pool.execute("analyze gen_durable.instances, gen_durable.signals").await.expect("it is analyzed");
        assert_scans_no_tables(&mut late, &format!("{status}, analyzed")).await;
        f.pool
            .execute("vacuum analyze gen_durable.instances, gen_durable.signals")
            .await
            .expect("it is vacuumed");
        let mut vacuumed = prepared(&f).await;
        assert_scans_no_tables(&mut vacuumed, &format!("{status}, vacuumed")).await;
    }
}
