//! Statements that stop in the middle, at the row that a test says, until the test lets them go on and commit.

use gen_durable_tests::{Bed, until};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Keeps statements that write certain rows from being committed.
pub(crate) struct Gate {
    keeper: PgConnection,
    pool: sqlx::PgPool,
}

impl Gate {
    /// Stops whoever updates an instance for which `when` is true, after the row is locked and written.
    pub(crate) async fn close(bed: &Bed, when: &str) -> Self {
        let mut keeper = PgConnection::connect_with(&bed.database.options()).await.expect("a connection");
        sqlx::query("select pg_advisory_lock(1)").execute(&mut keeper).await.expect("it is closed");
        let text = format!(
            "create or replace function stop() returns trigger language plpgsql as $$ begin
                 perform pg_advisory_xact_lock_shared(1);
                 return null;
             end $$;
             create trigger stop after update on gen_durable.instances for each row when ({when})
                 execute function stop();"
        );
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&bed.pool).await.expect("a trigger");
        Self { keeper, pool: bed.pool.clone() }
    }

    /// Waits until somebody stands at the gate.
    pub(crate) async fn is_reached(&self) {
        let waits = "select exists (
            select from pg_locks
            where locktype = 'advisory' and not granted
                and database = (select oid from pg_database where datname = current_database())
        )";
        until("somebody stands at the gate", || async {
            sqlx::query_scalar(waits).fetch_one(&self.pool).await.expect("the locks")
        })
        .await;
    }

    /// Waits until somebody else waits for the row of one who stands at the gate.
    pub(crate) async fn has_followers(&self) {
        let waits = "select exists (
            select from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'
                and wait_event in ('transactionid', 'tuple')
        )";
        until("somebody waits for the row", || async {
            sqlx::query_scalar(waits).fetch_one(&self.pool).await.expect("the locks")
        })
        .await;
    }

    /// Lets everybody through, for good.
    pub(crate) async fn open(self) {
        self.keeper.close().await.expect("it is open");
    }
}
