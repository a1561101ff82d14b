//! Processes that die at any moment.

use std::time::{Duration, Instant};

use gen_durable_tests::{Process, until};

use crate::fleet::{self, Node, number, random};

const KILLS: u64 = 50;

/// The guarantee. One node, killed and started again: R17 for innocents, too.
#[tokio::test]
async fn one_node_killed_50_times_commits_every_outcome_once() {
    kill_at_random(5_000, &["a"]).await;
}

/// The guarantee, with three nodes of which one at a time is killed.
#[tokio::test]
async fn three_nodes_of_which_one_is_killed_50_times_commit_every_outcome_once() {
    kill_at_random(5_000, &["a", "b", "c"]).await;
}

/// Kills one of the nodes at a random moment, as often as told while the work lasts.
async fn kill_at_random(count: usize, names: &[&str]) {
    let bed = fleet::bed().await;
    let outcomes = fleet::insert_legs(&bed, count).await;
    let nodes: Vec<Node> = names.iter().map(|name| Node::named(name)).collect();
    let began = Instant::now();
    let mut processes: Vec<Process> = nodes.iter().map(|node| node.start(&bed)).collect();
    for kill in 0..KILLS {
        let committed = committed(&bed.pool).await;
        // Somewhere in the work that is left, such that all kills fall into it.
        let share = (outcomes - committed).unsigned_abs() / (KILLS - kill + 10);
        let moment = committed + i64::try_from(random(2 * share)).unwrap();
        until("the fleet gets on", || async { self::committed(&bed.pool).await >= moment }).await;
        // The journal is looked at now and then; the kill is to fall between the looks, too.
        tokio::time::sleep(Duration::from_millis(random(25))).await;
        let victim = usize::try_from(random(names.len() as u64)).unwrap();
        assert!(!processes[victim].has_ended(), "a node ended by itself");
        processes[victim].kill();
        processes[victim] = nodes[victim].start(&bed);
    }
    let killed = began.elapsed();
    assert!(fleet::unfinished(&bed.pool).await > 0, "the last kill came while there was work");
    until("all is done", || async { fleet::unfinished(&bed.pool).await == 0 }).await;
    fleet::check_legs(&bed.pool, outcomes).await;
    let most = number(&bed.pool, "select max(crashes)::bigint from journal").await;
    let charged = number(&bed.pool, "select count(*) from journal where crashes > 0").await;
    let alone = number(&bed.pool, "select count(*) from journal where crashes > 1").await;
    println!(
        "{KILLS} kills of {names:?} in {killed:?}, all done after {:?}; {charged} outcomes were charged with a \
         crash, {alone} ran alone, the most crashes of one were {most}",
        began.elapsed()
    );
    assert_eq!(fleet::deadlocks(&bed.pool).await, 0);
}

async fn committed(pool: &sqlx::PgPool) -> i64 {
    number(pool, "select coalesce(max(seq), 0) from journal").await
}
