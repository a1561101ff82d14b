//! How nodes hear of work: notifications, their loss, and life without them.
//!
//! Where a notification is to be proved, polls are an hour apart.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gen_durable::{Engine, EngineBuilder, Poke};
use gen_durable_tests::{Bed, Proxy, until};
use tokio::sync::Semaphore;

use crate::fleet::errand::{Does, Errand, Errands, Run};
use crate::fleet::{self, SOON, number};

const HOUR: Duration = Duration::from_secs(3600);

/// What takes longer was not told.
const PROMPT: Duration = Duration::from_secs(10);

fn without_polls(bed: &Bed) -> EngineBuilder {
    let errands = Errands { node: "a".into(), pool: bed.pool.clone(), gate: None };
    bed.engine()
        .queue("errands", 4)
        .register(Errand::machine(errands))
        .poll_interval(HOUR)
        .max_poll_interval(HOUR)
}

/// Another node, that only inserts.
async fn elsewhere(bed: &Bed) -> Engine {
    bed.engine().without_queues().without_reaper().start().await.unwrap()
}

/// Inserts elsewhere, and returns how long it took until the other node was done with it.
async fn pick_up(web: &Engine) -> Duration {
    let start = Instant::now();
    let handle = web.insert(Run { does: Does::Nothing }).await.unwrap();
    assert_eq!(handle.result().within(SOON).await.unwrap().done().unwrap(), "a");
    start.elapsed()
}

async fn listeners(bed: &Bed) -> i64 {
    let listeners = "select count(*) from pg_stat_activity \
                     where datname = current_database() and query ilike 'listen%'";
    number(&bed.pool, listeners).await
}

/// R06.
#[tokio::test]
async fn a_killed_listener_listens_again_and_looks_for_what_it_missed() {
    let bed = fleet::bed().await;
    let engine = without_polls(&bed).start().await.unwrap();
    let web = elsewhere(&bed).await;
    until("both listen", || async { listeners(&bed).await == 2 }).await;
    assert!(pick_up(&web).await < PROMPT);
    for _ in 0..3 {
        let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                    where datname = current_database() and query ilike 'listen%'";
        assert!(number(&bed.pool, kill).await > 0);
        // Inserted while perhaps nobody listens: it is looked for after the reconnect.
        assert!(pick_up(&web).await < PROMPT);
        until("both listen again", || async { listeners(&bed).await == 2 }).await;
        assert!(pick_up(&web).await < PROMPT);
    }
    engine.shutdown().await;
    web.shutdown().await;
}

/// R06: the first reconnects fail.
#[tokio::test]
async fn a_listener_that_cannot_reconnect_tries_in_peace_and_catches_up() {
    let bed = fleet::bed().await;
    let proxy = Proxy::start(&bed.database.options()).await.unwrap();
    let engine = without_polls(&bed).listen_url(proxy.url()).start().await.unwrap();
    let web = elsewhere(&bed).await;
    until("both listen", || async { listeners(&bed).await == 2 }).await;
    assert_eq!(proxy.attempts(), 1);
    assert!(pick_up(&web).await < PROMPT);

    let refused = Instant::now();
    proxy.refuse();
    until("it has tried a few times", || async { proxy.attempts() >= 5 }).await;
    // On a busy machine the claim before may look twice (see `looks.rs`), but by now it has done so.
    let missed = web.insert(Run { does: Does::Nothing }).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let attempts = proxy.attempts() - 1;
    let bound = 10 + usize::try_from(refused.elapsed().as_secs()).unwrap() * 2;
    assert!(attempts <= bound, "{attempts} attempts in {:?}", refused.elapsed());
    println!("{attempts} attempts to reconnect in {:?}", refused.elapsed());
    assert_eq!(number(&bed.pool, "select count(*) from starts").await, 1, "nobody told it");

    let admitted = Instant::now();
    proxy.admit();
    missed.result().within(SOON).await.unwrap().done().unwrap();
    assert!(admitted.elapsed() < PROMPT, "missed work is looked for at once");
    assert!(pick_up(&web).await < PROMPT);
    engine.shutdown().await;
    web.shutdown().await;
}

/// R07: whatever is committed between a look and the sleep after it wakes the sleeper.
#[tokio::test]
async fn work_committed_at_any_moment_is_picked_up_promptly() {
    let bed = fleet::bed().await;
    let engine = without_polls(&bed).start().await.unwrap();
    let web = elsewhere(&bed).await;
    until("both listen", || async { listeners(&bed).await == 2 }).await;
    let mut slowest = Duration::ZERO;
    for time in 0..200_u64 {
        // Right behind one another, and a little apart: into every phase of the other node's look.
        if time % 2 == 0 {
            tokio::time::sleep(Duration::from_micros(fleet::random(5_000))).await;
        }
        slowest = slowest.max(pick_up(&web).await);
    }
    assert!(slowest < PROMPT, "{slowest:?}");
    engine.shutdown().await;
    web.shutdown().await;
}

/// R07 for results: the end is committed between the look of one who waits and its sleep.
#[tokio::test]
async fn a_result_committed_at_any_moment_elsewhere_reaches_who_waits() {
    let bed = fleet::bed().await;
    let engine = without_polls(&bed).start().await.unwrap();
    let web = bed
        .engine()
        .without_queues()
        .without_reaper()
        .poll_interval(HOUR)
        .max_poll_interval(HOUR)
        .start()
        .await
        .unwrap();
    until("both listen", || async { listeners(&bed).await == 2 }).await;
    let mut waits = tokio::task::JoinSet::new();
    for time in 0..200 {
        let handle = web.insert(Run { does: Does::Work(time % 60) }).await.unwrap();
        waits.spawn(async move { handle.result().within(SOON).await.unwrap().done().unwrap() });
    }
    while let Some(waited) = waits.join_next().await {
        assert_eq!(waited.unwrap(), "a");
    }
    engine.shutdown().await;
    web.shutdown().await;
}

/// R07: a claim passes over a row that is just being marked by one who waits for its result.
#[tokio::test]
async fn a_row_that_was_being_marked_when_a_slot_came_free_is_picked_up_promptly() {
    let bed = fleet::bed().await;
    let slow = "
        create function slow() returns trigger language plpgsql as $$
        begin
            perform pg_sleep(1);
            return new;
        end
        $$;
        create trigger slow before update on gen_durable.instances for each row
            when (new.watched and not old.watched) execute function slow();
    ";
    sqlx::raw_sql(slow).execute(&bed.pool).await.unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let errands = Errands { node: "a".into(), pool: bed.pool.clone(), gate: Some(Arc::clone(&gate)) };
    let engine = bed.engine().queue("errands", 1).register(Errand::machine(errands));
    let engine = engine.poll_interval(HOUR).max_poll_interval(HOUR).start().await.unwrap();
    let web = elsewhere(&bed).await;
    until("both listen", || async { listeners(&bed).await == 2 }).await;
    web.insert(Run { does: Does::Hold }).await.unwrap();
    until("the only slot is held", || async { number(&bed.pool, "select count(*) from starts").await == 1 })
        .await;

    let next = web.insert(Run { does: Does::Nothing }).await.unwrap();
    let waits = tokio::spawn(async move { next.result().within(SOON).await.unwrap().done().unwrap() });
    let marking = "select count(*) from pg_stat_activity where datname = current_database() \
                   and state = 'active' and query like '-- gen-durable: watch%'";
    until("it is being marked", || async { number(&bed.pool, marking).await == 1 }).await;
    let freed = Instant::now();
    gate.add_permits(1);
    assert_eq!(waits.await.unwrap(), "a");
    assert!(freed.elapsed() < PROMPT, "{:?}", freed.elapsed());
    engine.shutdown().await;
    web.shutdown().await;
}

/// Life without notifications: polling finds what other nodes insert, delay or finish.
async fn by_polling(poke: Poke) {
    let bed = fleet::bed().await;
    let errands = Errands { node: "a".into(), pool: bed.pool.clone(), gate: None };
    let engine = bed.engine().queue("errands", 4).register(Errand::machine(errands)).poke(poke);
    let engine = engine.start().await.unwrap();
    let web = bed.engine().without_queues().without_reaper().poke(poke).start().await.unwrap();
    assert_eq!(listeners(&bed).await, 0);
    for _ in 0..3 {
        pick_up(&web).await;
    }
    let delayed = web.insert(Run { does: Does::Nothing }).delay(Duration::from_millis(300)).await.unwrap();
    assert_eq!(delayed.result().within(SOON).await.unwrap().done().unwrap(), "a");
    let own = engine.insert(Run { does: Does::Nothing }).await.unwrap();
    assert_eq!(own.result().within(SOON).await.unwrap().done().unwrap(), "a");
    engine.shutdown().await;
    web.shutdown().await;
}

#[tokio::test]
async fn without_pokes_work_is_found_by_polling() {
    by_polling(Poke::None).await;
}

#[tokio::test]
async fn with_local_pokes_the_work_of_other_nodes_is_found_by_polling() {
    by_polling(Poke::Local).await;
}
