//! Statements that commit, and whose answers are lost with the connection.

use std::time::Duration;

use gen_durable::Engine;
use gen_durable_tests::{Bed, Proxy, until};
use sqlx::PgPool;

use crate::fleet::errand::{Does, Errand, Errands, Run};
use crate::fleet::{self, SOON, number, row, starts};

/// An engine whose connections all go through a proxy.
async fn behind_proxy(bed: &Bed) -> (Proxy, Engine) {
    let proxy = Proxy::start(&bed.database.options()).await.unwrap();
    let errands = Errands { node: "a".into(), pool: bed.pool.clone(), gate: None };
    let engine = Bed::engine_on(PgPool::connect_lazy_with(proxy.options()))
        // What comes back comes back by itself, not by a lease that ends.
        .lease_ttl(Duration::from_secs(600))
        .heartbeat(Duration::from_millis(200))
        .queue("errands", 4)
        .register(Errand::machine(errands))
        .start()
        .await
        .unwrap();
    (proxy, engine)
}

async fn lost(proxy: &Proxy) {
    until("the answer is lost", || async { proxy.lost_answers() == 1 }).await;
}

/// A claim whose answer is lost is found by the next heartbeat, and handed back uncharged.
#[tokio::test]
async fn rows_of_a_claim_whose_answer_was_lost_come_back_uncharged() {
    let bed = fleet::bed().await;
    let (proxy, engine) = behind_proxy(&bed).await;
    // The statement is prepared by now.
    let warm = engine.insert(Run { does: Does::Nothing }).await.unwrap();
    warm.result().within(SOON).await.unwrap().done().unwrap();
    // All that is there is lost with the first claim; or more is left.
    for (time, count) in [(1, 3), (2, 50)] {
        proxy.lose_answer_of("claim");
        let ids = engine.insert_all((0..count).map(|_| Run { does: Does::Nothing })).await.unwrap();
        until("the answer is lost", || async { proxy.lost_answers() == time }).await;
        until("all are done", || async { fleet::unfinished(&bed.pool).await == 0 }).await;
        for id in ids {
            let once = (1, ("done".into(), 0, 0));
            assert_eq!((starts(&bed.pool, id).await, row(&bed.pool, id).await), once);
        }
    }
    engine.shutdown().await;
}

/// R13: a flush whose answer is lost is settled by asking again.
#[tokio::test]
async fn outcomes_whose_acknowledgement_was_lost_are_committed_once() {
    let bed = fleet::bed().await;
    let (proxy, engine) = behind_proxy(&bed).await;
    let warm = engine.insert(Run { does: Does::Nothing }).await.unwrap();
    warm.result().within(SOON).await.unwrap().done().unwrap();
    proxy.lose_answer_of("flush");
    let ids = engine.insert_all((0..20).map(|_| Run { does: Does::Nothing })).await.unwrap();
    lost(&proxy).await;
    until("all are done", || async { fleet::unfinished(&bed.pool).await == 0 }).await;
    for id in &ids {
        let result = engine.result::<Errand>(*id).within(SOON).await.unwrap();
        assert_eq!(result.done().unwrap(), "a");
        assert_eq!(starts(&bed.pool, *id).await, 1);
    }
    assert_eq!(number(&bed.pool, "select count(*) from journal").await, 21);
    engine.shutdown().await;
}

/// An insert whose answer is lost inserts one row.
#[tokio::test]
async fn an_insert_whose_answer_was_lost_inserts_one_row() {
    let bed = fleet::bed().await;
    let (proxy, engine) = behind_proxy(&bed).await;
    engine.insert(Run { does: Does::Nothing }).await.unwrap();
    proxy.lose_answer_of("insert");
    let handle = engine.insert(Run { does: Does::Nothing }).await.unwrap();
    lost(&proxy).await;
    assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), "a");
    assert_eq!(number(&bed.pool, "select count(*) from gen_durable.instances").await, 2);
    engine.shutdown().await;
}

/// A heartbeat whose answer is lost is only followed by the next one.
#[tokio::test]
async fn a_heartbeat_whose_answer_was_lost_ends_no_lease() {
    let bed = fleet::bed().await;
    let (proxy, engine) = behind_proxy(&bed).await;
    let beats = async || number(&bed.pool, "select max(beat) from gen_durable.workers").await;
    until("it beats", || async { beats().await > 1 }).await;
    proxy.lose_answer_of("beat");
    lost(&proxy).await;
    let seen = beats().await;
    until("it goes on", || async { beats().await > seen }).await;
    assert_eq!(number(&bed.pool, "select count(*) from gen_durable.workers").await, 1);
    let handle = engine.insert(Run { does: Does::Nothing }).await.unwrap();
    assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), "a");
    engine.shutdown().await;
}

/// A row whose release was answered by nobody is free all the same.
#[tokio::test]
async fn a_release_whose_answer_was_lost_frees_the_rows_for_others() {
    let bed = fleet::bed().await;
    let (proxy, engine) = behind_proxy(&bed).await;
    let ids = engine.insert_all((0..4).map(|_| Run { does: Does::Hold })).await.unwrap();
    until("all run", || async { number(&bed.pool, "select count(*) from starts").await == 4 }).await;
    proxy.lose_answer_of("release");
    let stopping = tokio::spawn(async move { engine.shutdown().await });
    lost(&proxy).await;
    stopping.await.unwrap();
    for id in ids {
        assert_eq!(row(&bed.pool, id).await, ("ready".into(), 0, 0));
    }
}
