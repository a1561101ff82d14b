//! Statements of running engines.

use std::future::IntoFuture;

use gen_durable::prelude::*;
use gen_durable_tests::Bed;

#[durable_fsm(output = u32, queue = "countdown")]
enum Countdown {
    #[state(finishes)]
    Count { left: u32 },
}

#[tokio::test]
async fn single_inserts_at_once_share_statements_and_each_gets_its_own_row() {
    let bed = Bed::create().await;
    let engine = bed.engine().without_queues().start().await.unwrap();
    let inserts = (0..500).map(|n| engine.insert(Count { left: n }).into_future());
    let handles = futures_util::future::try_join_all(inserts).await.unwrap();
    let ids: std::collections::HashSet<_> = handles.iter().map(gen_durable::Handle::id).collect();
    assert_eq!(ids.len(), 500);
    let (rows, transactions): (i64, i64) =
        sqlx::query_as("select count(*), count(distinct xmin::text) from gen_durable.instances")
            .fetch_one(&bed.pool)
            .await
            .unwrap();
    assert_eq!(rows, 500);
    assert!(transactions < 50, "{transactions} transactions");
    engine.shutdown().await;
}
