//! Time zones.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use gen_durable::store::{NewInstance, Start, Store};
use gen_durable_tests::Database;
use sqlx::{AssertSqlSafe, Executor};

use super::setup::{Fixture, retry};

/// R21
#[tokio::test]
async fn time_zones_of_database_role_and_session_change_no_instant() {
    let database = Database::create().await;
    let name = database.options().get_database().expect("a name").to_owned();
    let zone = format!("alter database {name} set timezone = 'Australia/Lord_Howe'");
    database.pool().execute(AssertSqlSafe(zone)).await.expect("the zone is set");
    let hostile = database.options().options([("TimeZone", "America/St_Johns"), ("DateStyle", "SQL, DMY")]);
    database.pool().set_connect_options(hostile);
    let f = Fixture::on(database).await;
    let at = Utc::now() + TimeDelta::milliseconds(400);
    let new = NewInstance { start: Start::At(at), ..f.instance() };
    f.store.insert(std::slice::from_ref(&new)).await.expect("it is inserted");
    assert_eq!(
        f.look(new.id).await.eligible_at.expect("an instant").timestamp_micros(),
        at.timestamp_micros()
    );
    let next_due = f.store.promote(10).await.expect("it promotes").next_due.expect("one is due");
    assert!(next_due <= Duration::from_millis(400), "{next_due:?}");
    tokio::time::sleep(next_due).await;
    assert_eq!(f.store.promote(10).await.expect("it promotes").count, 1);
    let row = f.claim(1).await.remove(0);
    f.flush(&[retry(&row, "later")]).await;
    let seen = f.look(row.id).await;
    assert!((Utc::now() - seen.eligible_at.expect("an instant")).abs() < TimeDelta::seconds(60));
    assert!((Utc::now() - seen.created_at).abs() < TimeDelta::seconds(60));
}
