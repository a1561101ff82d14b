//! What tests of faults share: machines, a journal of what the database committed, and nodes to kill.

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{EngineBuilder, InstanceId};
use gen_durable_tests::{Bed, Database, Process, end_with_parent};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::sync::Semaphore;
use uuid::Uuid;

/// Long enough for anything that is to happen, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Five steps that count themselves: a step that is lost or runs twice shows in the output.
#[durable_fsm(output = u32, queue = "legs")]
#[derive(Debug)]
pub enum FiveLegs {
    /// The first.
    #[state(initial, next(Second))]
    First {
        /// How many steps were committed.
        run: u32,
    },
    /// The second.
    #[state(next(Third))]
    Second {
        /// How many steps were committed.
        run: u32,
    },
    /// The third.
    #[state(next(Fourth))]
    Third {
        /// How many steps were committed.
        run: u32,
    },
    /// The fourth.
    #[state(next(Fifth))]
    Fourth {
        /// How many steps were committed.
        run: u32,
    },
    /// The fifth.
    #[state(finishes)]
    Fifth {
        /// How many steps were committed.
        run: u32,
    },
}

/// Takes as long as work does.
pub(crate) struct Legs;

const WORK: Duration = Duration::from_millis(2);

impl FiveLegsSteps for Legs {
    async fn first(&self, s: First, cx: &mut Context<First>) -> StepResult<First> {
        tokio::time::sleep(WORK).await;
        Ok(cx.next(Second { run: s.run + 1 }))
    }

    async fn second(&self, s: Second, cx: &mut Context<Second>) -> StepResult<Second> {
        tokio::time::sleep(WORK).await;
        Ok(cx.next(Third { run: s.run + 1 }))
    }

    async fn third(&self, s: Third, cx: &mut Context<Third>) -> StepResult<Third> {
        tokio::time::sleep(WORK).await;
        Ok(cx.next(Fourth { run: s.run + 1 }))
    }

    async fn fourth(&self, s: Fourth, cx: &mut Context<Fourth>) -> StepResult<Fourth> {
        tokio::time::sleep(WORK).await;
        Ok(cx.next(Fifth { run: s.run + 1 }))
    }

    async fn fifth(&self, s: Fifth, cx: &mut Context<Fifth>) -> StepResult<Fifth> {
        tokio::time::sleep(WORK).await;
        Ok(cx.done(s.run + 1))
    }
}

pub(crate) mod errand {
    //! A machine of one step that notes its starts in the database and does as it is told.

    use super::*;

    /// What a step is told to do.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    pub enum Does {
        /// Ends at once.
        Nothing,
        /// Waits until the node lets it go; on nodes without such a gate, for ever.
        Hold,
        /// Takes that many milliseconds.
        Work(u64),
        /// Keeps its thread for that many milliseconds, without awaiting anything; on nodes with a gate, holds.
        Block(u64),
        /// Ends the process.
        Abort,
        /// Ends the process, and so does its error method.
        AbortTwice,
    }

    /// Does what it is told; yields the name of the node that did it.
    #[durable_fsm(output = String, queue = "errands")]
    #[derive(Debug)]
    pub enum Errand {
        /// Without a retry policy.
        #[state(initial, finishes)]
        Run {
            /// What to do.
            does: Does,
        },
        /// At most three starts.
        #[state(initial, finishes, retry(max_attempts = 3, backoff = "1ms"))]
        Thrice {
            /// What to do.
            does: Does,
        },
        /// At most one start.
        #[state(initial, finishes, retry(max_attempts = 1))]
        Once {
            /// What to do.
            does: Does,
        },
    }

    /// Runs errands on a node.
    pub(crate) struct Errands {
        pub(crate) node: String,
        pub(crate) pool: PgPool,
        pub(crate) gate: Option<Arc<Semaphore>>,
    }

    /// How many steps run in this process, by node and database.
    static RUNNING: LazyLock<Mutex<HashMap<String, i64>>> = LazyLock::new(Mutex::default);

    fn running(node: &str, pool: &PgPool, more: i64) -> i64 {
        let database = pool.connect_options().get_database().unwrap_or_default().to_owned();
        let mut running = RUNNING.lock().unwrap();
        let count = running.entry(format!("{node} on {database}")).or_default();
        *count += more;
        *count
    }

    impl Errands {
        async fn note<S: gen_durable::State>(&self, cx: &Context<S>, what: &str) -> Result<(), StepError> {
            note(&self.pool, cx.id(), &self.node, what, cx.crashes().into()).await?;
            Ok(())
        }

        async fn carry_out<S: gen_durable::State>(
            &self,
            does: Does,
            cx: &Context<S>,
        ) -> Result<String, StepError> {
            let mut running = Running::here(self, cx.id());
            self.note(cx, "step").await?;
            match does {
                Does::Nothing => {}
                Does::Work(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
                Does::Abort | Does::AbortTwice => std::process::abort(),
                Does::Hold | Does::Block(_) if self.gate.is_some() => {
                    self.gate.as_ref().expect("just seen").acquire().await?.forget();
                }
                Does::Hold => std::future::pending().await,
                Does::Block(millis) => std::thread::sleep(Duration::from_millis(millis)),
            }
            running.ended = true;
            Ok(self.node.clone())
        }

        async fn fail<S: gen_durable::State>(
            &self,
            does: Does,
            error: &StepError,
            cx: &Context<S>,
        ) -> Result<String, StepError> {
            self.note(cx, &format!("error: {error}")).await?;
            if does == Does::AbortTwice {
                std::process::abort();
            }
            Ok(format!("gave up: {error}"))
        }
    }

    async fn note(pool: &PgPool, id: InstanceId, node: &str, what: &str, crashes: i64) -> sqlx::Result<()> {
        let beside = running(node, pool, 0) - 1;
        sqlx::query("insert into starts (id, node, what, crashes, beside) values ($1, $2, $3, $4, $5)")
            .bind(id.as_uuid())
            .bind(node)
            .bind(what)
            .bind(crashes)
            .bind(beside)
            .execute(pool)
            .await
            .map(drop)
    }

    /// A step that runs; notes when it is told to stop.
    struct Running {
        pool: PgPool,
        node: String,
        id: InstanceId,
        ended: bool,
    }

    impl Running {
        fn here(errands: &Errands, id: InstanceId) -> Self {
            running(&errands.node, &errands.pool, 1);
            Self { pool: errands.pool.clone(), node: errands.node.clone(), id, ended: false }
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            running(&self.node, &self.pool, -1);
            if !self.ended {
                let (pool, node, id) = (self.pool.clone(), self.node.clone(), self.id);
                tokio::spawn(async move { note(&pool, id, &node, "told to stop", 0).await });
            }
        }
    }

    impl ErrandSteps for Errands {
        async fn run(&self, s: Run, cx: &mut Context<Run>) -> StepResult<Run> {
            Ok(cx.done(self.carry_out(s.does, cx).await?))
        }

        async fn on_run_error(&self, s: Run, error: StepError, cx: &mut Context<Run>) -> StepResult<Run> {
            Ok(cx.stop(self.fail(s.does, &error, cx).await?))
        }

        async fn thrice(&self, s: Thrice, cx: &mut Context<Thrice>) -> StepResult<Thrice> {
            Ok(cx.done(self.carry_out(s.does, cx).await?))
        }

        async fn on_thrice_error(
            &self,
            s: Thrice,
            error: StepError,
            cx: &mut Context<Thrice>,
        ) -> StepResult<Thrice> {
            Ok(cx.stop(self.fail(s.does, &error, cx).await?))
        }

        async fn once(&self, s: Once, cx: &mut Context<Once>) -> StepResult<Once> {
            Ok(cx.done(self.carry_out(s.does, cx).await?))
        }

        async fn on_once_error(&self, s: Once, error: StepError, cx: &mut Context<Once>) -> StepResult<Once> {
            Ok(cx.stop(self.fail(s.does, &error, cx).await?))
        }
    }
}

use errand::{Errand, Errands};

/// A bed whose database keeps a journal: one row for each committed outcome, and one for each start of an
/// [`Errand`].
pub(crate) async fn journaled(database: Database) -> Bed {
    let bed = Bed::on(database).await;
    let setup = "
        create table journal (
            seq bigint generated always as identity primary key,
            id uuid not null,
            revision bigint not null,
            crashes int not null
        );
        create table starts (
            seq bigint generated always as identity primary key,
            id uuid not null,
            node text not null,
            what text not null,
            crashes bigint not null,
            beside bigint not null
        );
        create function note_outcome() returns trigger language plpgsql as $$
        begin
            insert into public.journal (id, revision, crashes) values (new.id, new.revision, old.crashes);
            return null;
        end
        $$;
        create trigger note_outcome after update on gen_durable.instances for each row
            when (new.revision <> old.revision) execute function note_outcome();
    ";
    sqlx::raw_sql(setup).execute(&bed.pool).await.unwrap();
    bed
}

/// A bed with a journal on the server of this process.
pub(crate) async fn bed() -> Bed {
    journaled(Database::create().await).await
}

/// One number out of the database.
pub(crate) async fn number(pool: &PgPool, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(pool).await.expect(query)
}

/// Inserts instances of five steps, and returns how many outcomes they will have.
pub(crate) async fn insert_legs(bed: &Bed, count: usize) -> i64 {
    let web = bed.engine().without_queues().without_reaper().start().await.unwrap();
    web.insert_all((0..count).map(|_| First { run: 0 })).await.unwrap();
    web.shutdown().await;
    5 * i64::try_from(count).unwrap()
}

/// Checks that every instance of five steps is done, that each of its outcomes was committed once, and that none of
/// its steps was lost or counted twice.
pub(crate) async fn check_legs(pool: &PgPool, outcomes: i64) {
    let (journal, distinct, highest): (i64, i64, i64) =
        sqlx::query_as("select count(*), count(distinct (id, revision)), max(revision) from journal")
            .fetch_one(pool)
            .await
            .unwrap();
    assert_eq!((journal, distinct, highest), (outcomes, outcomes, 5), "each outcome is committed once");
    let done = "select count(*) from gen_durable.instances \
                where status = 'done' and revision = 5 and output::text = '5' and state::text = '{\"run\":4}'";
    assert_eq!(number(pool, done).await * 5, outcomes, "all are done, after five steps");
}

/// How many instances are not done.
pub(crate) async fn unfinished(pool: &PgPool) -> i64 {
    number(pool, "select count(*) from gen_durable.instances where status not in ('done', 'failed')").await
}

/// How often a step was started.
pub(crate) async fn starts(pool: &PgPool, id: InstanceId) -> i64 {
    sqlx::query_scalar("select count(*) from starts where id = $1 and what = 'step'")
        .bind(id.as_uuid())
        .fetch_one(pool)
        .await
        .unwrap()
}

/// How many deadlocks there were.
pub(crate) async fn deadlocks(pool: &PgPool) -> i64 {
    number(pool, "select deadlocks from pg_stat_database where datname = current_database()").await
}

/// How often something was noted of an instance on a node: `step`, `told to stop`, or `error: ...`.
pub(crate) async fn noted(pool: &PgPool, id: InstanceId, node: &str, what: &str) -> i64 {
    sqlx::query_scalar("select count(*) from starts where id = $1 and node = $2 and what = $3")
        .bind(id.as_uuid())
        .bind(node)
        .bind(what)
        .fetch_one(pool)
        .await
        .unwrap()
}

/// The status of an instance, and what it was charged with.
pub(crate) async fn row(pool: &PgPool, id: InstanceId) -> (String, i32, i32) {
    sqlx::query_as("select status::text, attempt, crashes from gen_durable.instances where id = $1")
        .bind(id.as_uuid())
        .fetch_one(pool)
        .await
        .unwrap()
}

/// A worker process to be started.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// Name of the engine: one for all processes, as a deployment has.
    pub(crate) engine: String,
    pub(crate) max_crashes: u32,
    pub(crate) slots: u32,
    pub(crate) lease: Duration,
    pub(crate) heartbeat: Duration,
}

impl Node {
    /// A node that takes a dead namesake's claims back soon.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            engine: "fleet".into(),
            max_crashes: 20,
            slots: 20,
            lease: Duration::from_secs(2),
            heartbeat: Duration::from_millis(100),
        }
    }

    pub(crate) fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    pub(crate) fn lease(mut self, lease: Duration, heartbeat: Duration) -> Self {
        (self.lease, self.heartbeat) = (lease, heartbeat);
        self
    }

    /// Starts the process.
    pub(crate) fn start(&self, bed: &Bed) -> Process {
        let mut child = bed.database.child("fleet::child_runs_a_node").unwrap();
        child
            .env("FLEET_NODE", &self.name)
            .env("FLEET_ENGINE", &self.engine)
            .env("FLEET_MAX_CRASHES", self.max_crashes.to_string())
            .env("FLEET_SLOTS", self.slots.to_string())
            .env("FLEET_LEASE", self.lease.as_millis().to_string())
            .env("FLEET_HEARTBEAT", self.heartbeat.as_millis().to_string());
        Process::start(child).unwrap()
    }

    /// The same node's engine, to be started in this process.
    pub(crate) fn engine(&self, bed: &Bed, gate: Option<Arc<Semaphore>>) -> EngineBuilder {
        let errands = Errands { node: self.name.clone(), pool: bed.pool.clone(), gate };
        bed.engine()
            .node(&self.name)
            .max_crashes(self.max_crashes)
            .queue("legs", self.slots)
            .queue("errands", self.slots)
            .lease_ttl(self.lease)
            .heartbeat(self.heartbeat)
            .reaper(self.heartbeat)
            .register(FiveLegs::machine(Legs))
            .register(Errand::machine(errands))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run as a child"]
async fn child_runs_a_node() {
    end_with_parent();
    let number = |name: &str| env::var(name).unwrap().parse::<u32>().unwrap();
    let millis = |name: &str| Duration::from_millis(number(name).into());
    let node = Node {
        name: env::var("FLEET_NODE").unwrap(),
        engine: env::var("FLEET_ENGINE").unwrap(),
        max_crashes: number("FLEET_MAX_CRASHES"),
        slots: number("FLEET_SLOTS"),
        lease: millis("FLEET_LEASE"),
        heartbeat: millis("FLEET_HEARTBEAT"),
    };
    let engine = node.engine(&Bed::of_parent(), None).name(&node.engine).start().await.unwrap();
    // Until killed.
    std::future::pending::<()>().await;
    drop(engine);
}

/// Random numbers, different in each run.
pub(crate) fn random(below: u64) -> u64 {
    // Bits 64.. of a version 7 id are a version, the rest of the lower half is random.
    (Uuid::now_v7().as_u128() as u64 & 0xffff_ffff) % below.max(1)
}
