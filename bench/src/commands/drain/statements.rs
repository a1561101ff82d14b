//! How many statements the server ran for one database.

use std::time::Duration;

use sqlx::PgPool;

/// A count under way.
#[derive(Debug)]
pub(super) struct Statements {
    pool: PgPool,
    exact: bool,
    before: i64,
}

/// Every statement that a client sent, `begin` and `commit` included, without our own.
const EXACT: &str = "select coalesce(sum(s.calls), 0)::bigint /* bench */
    from pg_stat_statements s
    join pg_database d on d.oid = s.dbid
    where d.datname = current_database() and s.query not like '%/* bench */%'";

/// Without the extension: transactions, which a lone statement is one of, too.
const TRANSACTIONS: &str =
    "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()";

/// Backends report their transactions with a delay.
const REPORTED: Duration = Duration::from_secs(2);

async fn has_extension(pool: &PgPool) -> sqlx::Result<bool> {
    let loaded = "select current_setting('shared_preload_libraries') like '%pg_stat_statements%' /* bench */";
    sqlx::query_scalar(loaded).fetch_one(pool).await
}

/// In words, for the report.
pub(super) async fn method(pool: &PgPool) -> sqlx::Result<&'static str> {
    Ok(if has_extension(pool).await? {
        "pg_stat_statements, sum of calls"
    } else {
        "pg_stat_database, transactions (pg_stat_statements is not loaded)"
    })
}

impl Statements {
    pub(super) async fn begin(pool: &PgPool) -> sqlx::Result<Self> {
        let exact = has_extension(pool).await?;
        if exact {
            sqlx::query("create extension if not exists pg_stat_statements /* bench */")
                .execute(pool)
                .await?;
        }
        let mut statements = Self { pool: pool.clone(), exact, before: 0 };
        statements.before = statements.read().await?;
        Ok(statements)
    }

    pub(super) async fn end(self) -> sqlx::Result<i64> {
        Ok(self.read().await? - self.before)
    }

    async fn read(&self) -> sqlx::Result<i64> {
        if !self.exact {
            tokio::time::sleep(REPORTED).await;
        }
        let count = if self.exact { EXACT } else { TRANSACTIONS };
        sqlx::query_scalar(count).fetch_one(&self.pool).await
    }
}
