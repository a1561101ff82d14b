//! The graceful end of an engine, and the graceless one.

use std::time::{Duration, Instant};

use gen_durable::{Event, InstanceResult, Status};
use gen_durable_tests::{Bed, Database, Server, ServerOptions};

use crate::support::{NEVER, SOON, soon, told};
use crate::work::{Dig, Rest, Shift, Work, site};

/// R52
#[tokio::test]
async fn unfinished_rows_are_handed_back_uncharged_and_taken_over_at_once() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    let engine = || {
        // No poll finds them, and no lease runs out.
        bed.engine().poll_interval(NEVER).max_poll_interval(NEVER).lease_ttl(NEVER).queue("work", 2)
    };
    let ends = engine().drain_timeout(Duration::from_millis(50)).register(Work::machine(workers.clone()));
    let ends = ends.start().await.unwrap();
    let mut events = ends.events();
    let work = [ends.insert(Dig { n: 1 }).await.unwrap(), ends.insert(Dig { n: 2 }).await.unwrap()];
    foreman.started().await;
    foreman.started().await;
    let goes_on = engine().register(Work::machine(workers)).start().await.unwrap();

    ends.shutdown().await;
    let (released, running) = told(&mut events, |event| match event {
        Event::QueueDrained { released, running, queue } if &*queue == "work" => Some((released, running)),
        _ => None,
    })
    .await;
    assert_eq!((released, running), (2, 2));
    foreman.started().await;
    foreman.started().await;
    for work in &work {
        let row = goes_on.get(work.id()).await.unwrap().unwrap();
        assert_eq!((row.attempt, row.failures, row.crashes, row.revision), (0, 0, 0, 0));
        assert_eq!(row.status, Status::Executing);
    }
    foreman.allow(2);
    for (n, work) in work.iter().enumerate() {
        let result = goes_on.result::<Work>(work.id()).within(SOON).await.unwrap();
        assert_eq!(result.done().unwrap() as usize, n + 1);
    }
}

/// R52
#[tokio::test]
async fn rows_that_waited_for_a_slot_are_back_when_the_shutdown_ends() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    let engine = bed.engine().queue("work", 1).max_prefetch(50).drain_timeout(Duration::from_millis(50));
    let engine = engine.register(Work::machine(workers)).start().await.unwrap();
    // Short steps make it claim ahead; then one takes long. What it holds is handed back slowly.
    sqlx::raw_sql(
        "create function slow() returns trigger language plpgsql as $$ begin
             if old.status = 'executing' and new.status = 'ready' then perform pg_sleep(0.01); end if;
             return new;
         end $$;
         create trigger slow before update on gen_durable.instances for each row execute function slow();",
    )
    .execute(&bed.pool)
    .await
    .unwrap();
    engine.insert_all((0..300).map(|n| Rest { n })).priority(-1).await.unwrap();
    engine.insert(Dig { n: 0 }).await.unwrap();
    engine.insert_all((0..300).map(|n| Rest { n })).priority(1).await.unwrap();
    foreman.started().await;
    let held = "select count(*) from gen_durable.instances where status = 'executing'";
    soon(async { while sqlx::query_scalar::<_, i64>(held).fetch_one(&bed.pool).await.unwrap() < 2 {} }).await;
    soon(engine.shutdown()).await;
    let (executing, charged): (i64, i64) = sqlx::query_as(
        "select count(*) filter (where status = 'executing'), count(*) filter (where attempt + crashes > 0)
         from gen_durable.instances",
    )
    .fetch_one(&bed.pool)
    .await
    .unwrap();
    assert_eq!((executing, charged), (0, 0));
}

/// R52
#[tokio::test]
async fn decided_outcomes_are_committed_and_nothing_more_is_claimed() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    let engine = bed.engine().queue("work", 40).drain_timeout(SOON).register(Work::machine(workers));
    let engine = engine.start().await.unwrap();
    let web = bed.engine().without_queues().start().await.unwrap();
    let ids = web.insert_all((0..40).map(|n| Dig { n })).await.unwrap();
    for _ in &ids {
        foreman.started().await;
    }
    let mut events = engine.events();
    let stopping = tokio::spawn({
        let engine = engine.clone();
        async move { engine.shutdown().await }
    });
    // Once it inserts no more, it has stopped; what others insert from now on is not for it.
    soon(async {
        while engine.insert(Rest { n: 0 }).queue("elsewhere").await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let late = web.insert(Rest { n: 1 }).await.unwrap();
    foreman.allow(ids.len());
    soon(stopping).await.unwrap();
    for (n, id) in ids.into_iter().enumerate() {
        let end = web.get(id).await.unwrap().unwrap();
        assert_eq!((end.status, end.output), (Status::Done, Some(n.to_string())));
    }
    let late = web.get(late.id()).await.unwrap().unwrap();
    assert_eq!((late.status, late.worker), (Status::Ready, None));
    let drained = told(&mut events, |event| match event {
        Event::QueueDrained { released, running, .. } => Some((released, running)),
        _ => None,
    });
    assert_eq!(drained.await, (0, 0));
    let alive: i64 = sqlx::query_scalar("select count(*) from gen_durable.workers where not dead")
        .fetch_one(&bed.pool)
        .await
        .unwrap();
    assert_eq!(alive, 1, "only the web node's worker is left");
}

/// R52
#[tokio::test]
async fn an_instance_that_would_run_ahead_is_handed_back_with_its_outcome_committed() {
    let bed = Bed::create().await;
    let (workers, mut foreman) = site();
    let engine = bed.engine().queue("work", 4).drain_timeout(SOON).register(Work::machine(workers));
    let engine = engine.start().await.unwrap();
    let mut shifts = Vec::new();
    for n in 0..4 {
        shifts.push(engine.insert(Shift { n }).await.unwrap());
        foreman.started().await;
    }
    let (stopped, ()) = tokio::join!(engine.shutdown(), async { foreman.allow(4) });
    let () = stopped;
    for shift in shifts {
        let row = engine.get(shift.id()).await.unwrap().unwrap();
        let next = (row.status, row.step.as_str(), row.revision) == (Status::Ready, "rest", 1);
        assert!(next || row.status == Status::Done, "{row:?}");
        assert_eq!((row.attempt, row.crashes), (0, 0));
    }
}

/// R52
#[tokio::test]
async fn a_shutdown_ends_in_time_without_a_database() {
    let server = tokio::task::spawn_blocking(|| Server::start(ServerOptions::fast()).unwrap()).await.unwrap();
    let bed = Bed::on(Database::create_on(&server).await.unwrap()).await;
    let (workers, mut foreman) = site();
    let engine = bed.engine().queue("work", 2).drain_timeout(Duration::from_millis(100));
    let engine = engine.register(Work::machine(workers)).start().await.unwrap();
    engine.insert(Dig { n: 1 }).await.unwrap();
    engine.insert(Dig { n: 2 }).await.unwrap();
    foreman.started().await;
    foreman.started().await;
    server.stop().await.unwrap();
    // One outcome is decided and cannot be committed, one step does not end.
    foreman.allow(1);
    let start = Instant::now();
    soon(engine.shutdown()).await;
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());

    // Nothing is lost: both run again.
    server.start_again().await.unwrap();
    let bed = Bed { pool: bed.database.pool(), database: bed.database };
    let (workers, foreman) = site();
    foreman.allow(10);
    let engine = bed.engine().queue("work", 2).register(Work::machine(workers)).start().await.unwrap();
    let ids: Vec<sqlx::types::Uuid> =
        sqlx::query_scalar("select id from gen_durable.instances").fetch_all(&bed.pool).await.unwrap();
    assert_eq!(ids.len(), 2);
    for id in ids {
        let result = engine.result::<Work>(id.into()).within(SOON).await.unwrap();
        assert!(matches!(result, InstanceResult::Done(_)), "{result:?}");
    }
}

#[tokio::test]
async fn no_worker_stays_behind_however_often_engines_come_and_go() {
    let bed = Bed::create().await;
    for _ in 0..20 {
        let beats = bed.engine().heartbeat(Duration::from_millis(1)).without_reaper().without_gc();
        let engine = beats.start().await.unwrap();
        engine.shutdown().await;
    }
    let alive: i64 = sqlx::query_scalar("select count(*) from gen_durable.workers where not dead")
        .fetch_one(&bed.pool)
        .await
        .unwrap();
    assert_eq!(alive, 0);
}
