//! Time zones of sessions, roles, databases and servers.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use gen_durable::migrate;
use gen_durable::prelude::*;
use gen_durable_tests::{Bed, Database, Server, ServerOptions};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};

use crate::support::{LATE, SOON, clock};

/// When a step ran, by the database's clock.
#[durable_fsm(name = "alarm", output = i64)]
pub enum Alarm {
    #[state(finishes)]
    Ring {},
}

struct Clocks(PgPool);

impl AlarmSteps for Clocks {
    async fn ring(&self, _: Ring, cx: &mut Context<Ring>) -> StepResult<Ring> {
        Ok(cx.done(clock(&self.0).await))
    }
}

/// Asserts that what was due at `due` ran on time.
fn on_time(ran: i64, due: DateTime<Utc>, what: &str) {
    let late = ran - due.timestamp_micros();
    assert!(late >= 0, "{what}: {} us early", -late);
    assert!(i128::from(late) < LATE.as_micros() as i128, "{what}: {late} us late");
}

/// Runs delayed instances over this pool, and reads their instants back. The driver asks for sessions in UTC,
/// whatever the server's settings.
async fn check_zone(pool: PgPool, zone: &str) {
    let engine = gen_durable::Engine::postgres(pool.clone()).name(format!("in {zone}")).jobs([]);
    let engine = engine.register(Alarm::machine(Clocks(pool.clone()))).start().await.unwrap();
    let now = DateTime::from_timestamp_micros(clock(&pool).await).unwrap();
    let soon = now + TimeDelta::milliseconds(100);
    // In the hour that the clocks skip in spring, and twice in the hour that they repeat in autumn.
    let changes = ["2040-03-25T01:30:00Z", "2040-10-28T00:30:00Z", "2040-10-28T01:30:00Z"];
    for change in changes {
        let change: DateTime<Utc> = change.parse().unwrap();
        let alarm = engine.insert(Ring {}).run_at(change).await.unwrap();
        assert_eq!(engine.get(alarm.id()).await.unwrap().unwrap().eligible_at, Some(change), "{zone}");
    }
    let at = engine.insert(Ring {}).run_at(soon).await.unwrap();
    let after = engine.insert(Ring {}).delay(Duration::from_millis(100)).await.unwrap();
    for alarm in [at.clone(), after] {
        let ran = alarm.result().within(SOON).await.unwrap().done().unwrap();
        on_time(ran, engine.get(alarm.id()).await.unwrap().unwrap().eligible_at.unwrap(), zone);
    }
    let read = engine.get(at.id()).await.unwrap().unwrap();
    assert_eq!(read.eligible_at, Some(soon));
    assert!((read.created_at - now).num_seconds().abs() < 60, "{} and {now}", read.created_at);
    engine.shutdown().await;
}

/// R21
#[tokio::test]
async fn time_zones_of_session_role_and_database_change_nothing() {
    let bed = Bed::create().await;
    let database = bed.database.options();
    let session = PgPoolOptions::new()
        .connect_lazy_with(bed.database.options().options([("TimeZone", "Pacific/Apia")]));
    check_zone(session, "Pacific/Apia").await;

    let name = database.get_database().unwrap().to_owned();
    let set = format!("alter database {name} set timezone = 'Europe/Berlin'");
    sqlx::query(AssertSqlSafe(set)).execute(&bed.pool).await.unwrap();
    check_zone(PgPoolOptions::new().connect_lazy_with(bed.database.options()), "Europe/Berlin").await;

    let role = format!("{name}_role");
    let make =
        format!("create role {role} superuser login; alter role {role} set timezone = 'Asia/Kathmandu'");
    sqlx::raw_sql(AssertSqlSafe(make)).execute(&bed.pool).await.unwrap();
    let pool = PgPoolOptions::new().connect_lazy_with(bed.database.options().username(&role));
    check_zone(pool.clone(), "Asia/Kathmandu").await;
    pool.close().await;
    sqlx::query(AssertSqlSafe(format!("drop role {role}"))).execute(&bed.pool).await.unwrap();
}

/// R21
#[tokio::test]
async fn the_time_zone_of_the_server_changes_nothing() {
    let server = Server::start(ServerOptions::fast().set("timezone", "America/St_Johns")).unwrap();
    let database = Database::create_on(&server).await.unwrap();
    migrate::up(&database.pool()).await.unwrap();
    check_zone(database.pool(), "America/St_Johns").await;
}
