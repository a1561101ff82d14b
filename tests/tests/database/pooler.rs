//! R11: engines behind a pooler that lends a session of the server for one transaction at a time.

use std::io::ErrorKind;
use std::time::Duration;

use futures_util::future::try_join_all;
use gen_durable::{EngineBuilder, InstanceResult, migrate};
use gen_durable_tests::{Bed, Database, Pooler, Server, ServerOptions, until};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::fleet::{First, FiveLegs, Legs, SOON, number, unfinished};
use crate::support::{NEVER, soon};

/// Sessions of the server that all engines of a test share: far fewer than their connections.
const SESSIONS: u32 = 2;

/// A database and a way to it through PgBouncer.
struct Pooled {
    /// Ends before its server.
    pooler: Pooler,
    database: Database,
    pool: PgPool,
    _server: Server,
}

impl Pooled {
    /// `None` where PgBouncer is not installed, except on CI.
    async fn create() -> Option<Self> {
        let started = tokio::task::spawn_blocking(|| {
            let server = Server::start(ServerOptions::fast()).expect("a server");
            Pooler::start(&server, SESSIONS).map(|pooler| (pooler, server))
        });
        let (pooler, server) = match started.await.unwrap() {
            Ok(started) => started,
            Err(error) if error.kind() == ErrorKind::NotFound && std::env::var_os("CI").is_none() => {
                println!("left out: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let database = Database::create_on(&server).await.unwrap();
        let options = pooler.through(&database.options());
        let pool = PgPoolOptions::new().max_connections(5).connect_lazy_with(options);
        Some(Self { pooler, database, pool, _server: server })
    }

    /// A node with a pool of its own through the pooler.
    fn engine(&self) -> EngineBuilder {
        let pool = PgPoolOptions::new().connect_lazy_with(self.pooler.through(&self.database.options()));
        Bed::engine_on(pool).transaction_pooler(true)
    }

    /// The same, and it runs steps.
    fn worker(&self) -> EngineBuilder {
        self.engine().queue("legs", 8).register(FiveLegs::machine(Legs))
    }

    /// Statements with names that were left in the sessions of the server.
    async fn left_in_sessions(&self) -> i64 {
        // Transactions at once, so that each has another session.
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            sessions.push(self.pool.begin().await.unwrap());
        }
        let mut left = 0;
        for session in &mut sessions {
            let count = sqlx::query_scalar("select count(*) from pg_prepared_statements").persistent(false);
            left += count.fetch_one(&mut **session).await.unwrap_or(0_i64);
        }
        left
    }
}

/// R11
#[tokio::test]
async fn all_work_ends_behind_a_pooler_that_lends_two_sessions_a_transaction_at_a_time() {
    let Some(pooled) = Pooled::create().await else { return };
    let (first, second) = tokio::join!(migrate::up(&pooled.pool), migrate::up(&pooled.pool));
    first.and(second).unwrap();
    migrate::up(&pooled.pool).await.unwrap();
    assert!(migrate::version(&pooled.pool).await.unwrap() > 0);

    let worker = pooled.worker().drain_timeout(Duration::ZERO).start().await.unwrap();
    let web = pooled.engine().without_queues().start().await.unwrap();
    let ids = web.insert_all((0..400).map(|_| First { run: 0 })).await.unwrap();
    let delayed = (1..=50).map(|n| web.insert(First { run: 0 }).delay(Duration::from_millis(n * 20)));
    let delayed = try_join_all(delayed.map(IntoFuture::into_future)).await.unwrap();
    let result = worker.result::<FiveLegs>(ids[0]).within(SOON).await.unwrap();
    assert!(matches!(result, InstanceResult::Done(5)), "{result:?}");
    // One node goes in the middle, and another comes.
    soon(worker.shutdown()).await;
    let next = pooled.worker().start().await.unwrap();
    for id in &ids {
        let result = next.result::<FiveLegs>(*id).within(SOON).await.unwrap();
        assert!(matches!(result, InstanceResult::Done(5)), "{result:?}");
    }
    // On a node that hears nothing of it.
    for handle in delayed {
        let result = handle.result().within(SOON).await.unwrap();
        assert!(matches!(result, InstanceResult::Done(5)), "{result:?}");
    }
    soon(next.shutdown()).await;
    soon(web.shutdown()).await;

    assert_eq!(unfinished(&pooled.database.pool()).await, 0);
    let claimed = "select count(*) from gen_durable.workers where not dead";
    assert_eq!(number(&pooled.database.pool(), claimed).await, 0, "every worker is retired");
    assert_eq!(pooled.left_in_sessions().await, 0);
}

/// R11
#[tokio::test]
async fn behind_a_pooler_notifications_come_by_the_servers_own_address_or_not_at_all() {
    let Some(pooled) = Pooled::create().await else { return };
    migrate::up(&pooled.pool).await.unwrap();
    let listening = "select count(*) from pg_stat_activity \
                     where datname = current_database() and query ilike 'listen%'";
    let direct = pooled.database.pool();
    let deaf = pooled.worker().start().await.unwrap();
    deaf.insert(First { run: 0 }).await.unwrap().result().within(SOON).await.unwrap().done().unwrap();
    assert_eq!(number(&direct, listening).await, 0, "no session of the pooler listens");
    soon(deaf.shutdown()).await;

    let hearing = pooled.worker().listen_url(pooled.database.url());
    let hearing = hearing.poll_interval(NEVER).max_poll_interval(NEVER).start().await.unwrap();
    until("it listens", || async { number(&direct, listening).await == 1 }).await;
    let web = pooled.engine().without_queues().start().await.unwrap();
    for _ in 0..3 {
        // Polls are an hour apart: what starts at once was told.
        web.insert(First { run: 0 }).await.unwrap().result().within(SOON).await.unwrap().done().unwrap();
    }
    soon(hearing.shutdown()).await;
}
