//! What several themes need: bounded waits, what was started how often, and databases that tell.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gen_durable::{Event, EventStream, InstanceId, Notice, migrate};
use gen_durable_tests::{Bed, Database, Server, ServerOptions};
use sqlx::PgPool;
use sqlx::postgres::PgListener;

/// Bounds every wait; far more than anything takes, even on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// An interval so long that what it paces never happens within a test.
pub(crate) const NEVER: Duration = Duration::from_secs(3600);
/// How late something may be in a test that is about being on time.
pub(crate) const LATE: Duration = Duration::from_secs(2);

/// Waits for something, not for ever.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("it takes too long")
}

/// Waits for the first event that `pick` picks.
pub(crate) async fn told<T>(events: &mut EventStream, mut pick: impl FnMut(Event) -> Option<T>) -> T {
    soon(async {
        loop {
            if let Notice::Event(event) = events.next().await.expect("the engine lives")
                && let Some(picked) = pick(event)
            {
                return picked;
            }
        }
    })
    .await
}

/// How often the step of each instance was started.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<HashMap<InstanceId, u32>>);

impl Tally {
    pub(crate) fn note(&self, id: InstanceId) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default() += 1;
    }

    pub(crate) fn of(&self, id: InstanceId) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).copied().unwrap_or_default()
    }
}

/// The database's clock, in microseconds.
pub(crate) async fn clock(pool: &PgPool) -> i64 {
    let clock = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
    sqlx::query_scalar(clock).fetch_one(pool).await.expect("the database's clock")
}

/// Tells of every change of an instance's row, from the database itself.
pub(crate) struct Changes(PgListener);

impl Changes {
    pub(crate) async fn watch(bed: &Bed) -> Self {
        sqlx::raw_sql(
            "create function tell() returns trigger language plpgsql as $$ begin
                 perform pg_notify('changes', new.id || ' ' || new.status || ' ' || new.watched);
                 return null;
             end $$;
             create trigger tell after insert or update of status, watched on gen_durable.instances
                 for each row execute function tell();",
        )
        .execute(&bed.pool)
        .await
        .expect("a trigger");
        let mut listener = PgListener::connect_with(&bed.pool).await.expect("a connection");
        listener.listen("changes").await.expect("it listens");
        Self(listener)
    }

    /// Waits until a row is told of in this status.
    pub(crate) async fn status(&mut self, id: InstanceId, status: &str) {
        self.find(id, |told| told.split(' ').nth(1) == Some(status)).await;
    }

    /// Waits until somebody asked to be told of the row's end.
    pub(crate) async fn watched(&mut self, id: InstanceId) {
        self.find(id, |told| told.ends_with(" true")).await;
    }

    async fn find(&mut self, id: InstanceId, holds: impl Fn(&str) -> bool) {
        soon(async {
            loop {
                let change = self.0.recv().await.expect("a change");
                if change.payload().starts_with(&id.to_string()) && holds(change.payload()) {
                    return;
                }
            }
        })
        .await;
    }
}

/// A bed on a server that writes each statement to its log before it runs it.
pub(crate) struct Logged {
    pub(crate) bed: Bed,
    log: Log,
}

impl Logged {
    pub(crate) async fn create() -> Self {
        let (database, log) = logged_database().await;
        Self { bed: Bed::on(database).await, log }
    }

    /// How often a statement of the engine ran.
    pub(crate) fn count(&self, statement: &str) -> usize {
        self.log.of_engine().iter().filter(|name| *name == statement).count()
    }

    /// How often the database refused something with these words.
    pub(crate) fn refusals(&self, words: &str) -> usize {
        let error = format!("{} ERROR:  {words}", self.log.database);
        self.log.lines().iter().filter(|line| line.starts_with(&error)).count()
    }

    /// How many statements of the engine ran.
    pub(crate) fn total(&self) -> usize {
        self.log.of_engine().len()
    }
}

/// What a server writes about the statements of one database.
pub(crate) struct Log {
    path: PathBuf,
    database: String,
}

impl Log {
    /// Names of the engine's statements that ran so far, in order.
    pub(crate) fn of_engine(&self) -> Vec<String> {
        let name = |statement: String| Some(statement.rsplit_once("-- gen-durable: ")?.1.to_owned());
        self.all().into_iter().filter_map(name).collect()
    }

    /// The first lines of all statements that ran so far, those that only begin and end transactions included.
    pub(crate) fn all(&self) -> Vec<String> {
        let ours = ["execute ", "statement: "].map(|kind| format!("{} LOG:  {kind}", self.database));
        let statement =
            |line: &String| ours.iter().find_map(|begin| line.strip_prefix(begin)).map(str::to_owned);
        self.lines().iter().filter_map(statement).collect()
    }

    fn lines(&self) -> Vec<String> {
        let log = std::fs::read(&self.path).expect("the server's log");
        String::from_utf8_lossy(&log).lines().map(str::to_owned).collect()
    }
}

/// A database on a server that writes each statement to its log before it runs it.
pub(crate) async fn logged_database() -> (Database, Log) {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = tokio::task::spawn_blocking(|| {
        SERVER.get_or_init(|| {
            let options = ServerOptions::fast()
                .set("log_statement", "all")
                .set("log_parameter_max_length", "0")
                .set("log_line_prefix", "%d ");
            Server::start(options).expect("a server that logs statements")
        })
    })
    .await
    .expect("it starts");
    let database = Database::create_on(server).await.expect("a database");
    let path = server.directory().expect("it is ours").join("server.log");
    let log = Log { path, database: database.options().get_database().expect("a name").to_owned() };
    (database, log)
}

/// A trigger that lets the database refuse updates of rows that `when` picks, with this SQLSTATE, as long as
/// `tries` last.
pub(crate) async fn refuse(bed: &Bed, when: &str, sqlstate: &str, tries: u32) {
    let text = format!(
        // A sequence keeps its count when the transaction is rolled back.
        "create or replace function refuse() returns trigger language plpgsql as $$ begin
             if ({when}) is true then
                 if nextval('refusals') <= {tries} then
                     raise exception 'refused by a trigger' using errcode = '{sqlstate}';
                 end if;
             end if;
             return new;
         end $$;
         create sequence if not exists refusals;
         select setval('refusals', 1, false);
         drop trigger if exists refuse on gen_durable.instances;
         create trigger refuse before update on gen_durable.instances for each row execute function refuse();"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&bed.pool).await.expect("a trigger");
}

/// How often the trigger of [`refuse`] has refused, at most `tries`.
pub(crate) async fn refusals(bed: &Bed) -> i64 {
    let text = "select case when is_called then last_value else 0 end from refusals";
    sqlx::query_scalar(text).fetch_one(&bed.pool).await.expect("the count")
}

/// A second schema in the same database.
pub(crate) async fn second_schema(bed: &Bed, name: &str) {
    migrate::schema(name).up(&bed.pool).await.expect("a second schema");
}
