//! Starting an engine: what is refused, and whose name is taken.

use std::time::Duration;

use gen_durable::{Engine, EngineBuilder, Error, Gc, migrate};
use gen_durable_tests::{Bed, Database};

use crate::support::{SOON, soon};
use crate::work::{Rest, Work, site};

async fn refused(builder: EngineBuilder) -> Error {
    builder.start().await.expect_err("it cannot start")
}

#[tokio::test]
async fn every_bad_option_is_refused_by_its_name() {
    let bed = Bed::create().await;
    let day = Duration::from_secs(86_400);
    let long = "x".repeat(256);
    for (builder, name) in [
        (bed.engine().name(""), "name"),
        (bed.engine().name(&*long), "name"),
        (bed.engine().node("a\0b"), "node"),
        (bed.engine().schema("Mixed"), "schema"),
        (bed.engine().schema("x\"; drop schema public; --"), "schema"),
        (bed.engine().queue("", 1), "queue"),
        (bed.engine().queue("a", 0), "queue"),
        (bed.engine().queue("a", u32::MAX), "queue"),
        (bed.engine().listen_url("nonsense"), "listen_url"),
        (bed.engine().lease_ttl(Duration::ZERO), "lease_ttl"),
        (bed.engine().lease_ttl(Duration::MAX), "lease_ttl"),
        (bed.engine().heartbeat(Duration::ZERO), "heartbeat"),
        (bed.engine().heartbeat(Duration::from_secs(1)), "heartbeat"),
        (bed.engine().poll_interval(Duration::from_nanos(1)), "poll_interval"),
        (bed.engine().max_poll_interval(Duration::from_millis(1)), "max_poll_interval"),
        (bed.engine().reaper(day * 2), "reaper"),
        (bed.engine().gc(Gc::default().every(Duration::ZERO)), "gc"),
        (bed.engine().gc(Gc::default().batch(0)), "gc"),
        (bed.engine().max_prefetch(u32::MAX), "max_prefetch"),
        (bed.engine().payload_limit(0), "payload_limit"),
        (bed.engine().payload_limit(usize::MAX), "payload_limit"),
        (bed.engine().max_crashes(0), "max_crashes"),
    ] {
        let error = refused(builder).await;
        let Error::Option { option, .. } = &error else { panic!("{name}: {error}") };
        assert_eq!(*option, name, "{error}");
        assert!(error.to_string().starts_with(&format!("option `{name}`: ")), "{error}");
    }
    // Extremes that can work.
    let patient = bed.engine().drain_timeout(Duration::MAX).gc(Gc::default().keep(Duration::MAX));
    patient.start().await.unwrap().shutdown().await;
}

#[tokio::test]
async fn a_name_is_taken_while_an_engine_has_it_and_free_after_its_shutdown_or_drop() {
    let bed = Bed::create().await;
    let named = || Engine::postgres(bed.pool.clone()).jobs([]).name("the only one").without_queues();
    let first = named().start().await.unwrap();
    let Error::AlreadyStarted { name } = refused(named()).await else { panic!("the name is taken") };
    assert_eq!(name, "the only one");
    let clone = first.clone();
    drop(first);
    assert!(matches!(refused(named()).await, Error::AlreadyStarted { .. }), "a clone is the same engine");

    clone.shutdown().await;
    let second = named().start().await.expect("free after a shutdown");
    drop(clone);
    assert!(matches!(refused(named()).await, Error::AlreadyStarted { .. }), "what is gone frees nothing");
    drop(second);
    named().start().await.expect("free after a drop").shutdown().await;
    // A start that fails takes no name.
    assert!(matches!(refused(named().schema("absent")).await, Error::Schema { .. }));
    named().start().await.expect("free after a start that failed").shutdown().await;
}

#[tokio::test]
async fn a_machine_registered_twice_is_refused() {
    let bed = Bed::create().await;
    let (workers, _foreman) = site();
    let twice = bed.engine().register(Work::machine(workers.clone())).register(Work::machine(workers));
    let error = refused(twice).await;
    let Error::DuplicateMachine { name, version: 1 } = &error else { panic!("{error}") };
    assert_eq!(name, "work");
}

#[tokio::test]
async fn a_database_that_is_not_migrated_or_too_new_is_refused_with_what_to_do() {
    let database = Database::create().await;
    let engine = || Engine::postgres(database.pool()).jobs([]).name("for old databases").without_queues();
    let error = refused(engine()).await;
    assert!(matches!(error, Error::Schema { .. }) && error.to_string().contains("migrat"), "{error}");

    migrate::up(&database.pool()).await.unwrap();
    engine().start().await.unwrap().shutdown().await;
    // A later release that says that our code cannot work with its schema.
    let later = "insert into gen_durable.migrations (version, oldest_code) values (999, 999)";
    sqlx::query(later).execute(&database.pool()).await.unwrap();
    let error = refused(engine()).await;
    assert!(matches!(error, Error::Schema { .. }), "{error}");
    // A later release that admits our code.
    let admits = "update gen_durable.migrations set oldest_code = 1 where version = 999";
    sqlx::query(admits).execute(&database.pool()).await.unwrap();
    engine().start().await.unwrap().shutdown().await;
}

#[tokio::test]
async fn an_unreachable_database_is_an_error_at_start_that_names_the_operation() {
    let bed = Bed::create().await;
    let nowhere = bed.database.options().socket("/nonexistent").port(1);
    let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy_with(nowhere);
    let start = Engine::postgres(pool).jobs([]).name("for nowhere").start();
    let error = soon(start).await.unwrap_err();
    assert!(
        matches!(error, Error::Store { .. }) && error.to_string().contains("schema's version"),
        "{error}"
    );
}

#[tokio::test]
async fn a_stopped_engine_inserts_nothing_and_a_second_shutdown_does_nothing() {
    let bed = Bed::create().await;
    let (workers, _foreman) = site();
    let engine = bed.engine().queue("work", 2).register(Work::machine(workers)).start().await.unwrap();
    let work = engine.insert(Rest { n: 1 }).await.unwrap();
    work.result().within(SOON).await.unwrap();
    engine.shutdown().await;
    soon(engine.clone().shutdown()).await;
    soon(engine.shutdown()).await;
    assert!(matches!(engine.insert(Rest { n: 1 }).await, Err(Error::Stopped)));
    assert!(matches!(engine.insert_all([Rest { n: 1 }]).await, Err(Error::Stopped)));
    assert!(matches!(engine.insert(Rest { n: 1 }).detached(), Err(Error::Stopped)));
    // Reading still works.
    assert!(engine.get(work.id()).await.unwrap().unwrap().status.is_terminal());
}
