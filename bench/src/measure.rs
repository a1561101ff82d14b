//! Summaries of repeated measurements.

use std::time::Duration;

use serde_json::Value;
use sqlx::{PgConnection, PgPool};

/// Measurements of one thing, in any unit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn of(sample: f64) -> Self {
        Self(vec![sample])
    }

    /// All of them, in the order they were taken.
    pub(crate) fn values(&self) -> Vec<f64> {
        self.0.clone()
    }

    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    pub(crate) fn push_milliseconds(&mut self, sample: Duration) {
        self.push(sample.as_secs_f64() * 1e3);
    }

    /// The middle one, or the mean of the two in the middle; not a number when there are none.
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.sorted();
        match sorted.len() {
            0 => f64::NAN,
            count if count % 2 == 1 => sorted[count / 2],
            count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
        }
    }

    /// The smallest sample that at least `percent` of all do not exceed; not a number when there are none.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let sorted = self.sorted();
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// Where the server's write-ahead log ends, in bytes: the difference of two is what was written between.
/// The whole server writes to it, so measure while nothing else runs.
pub(crate) async fn wal_position(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let position = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
    sqlx::query_scalar(position).fetch_one(connection).await
}

/// How many statements ran in this database so far, the present one not included; what began or ended a
/// transaction is not counted.
pub(crate) async fn statements(connection: &mut PgConnection) -> sqlx::Result<i64> {
    let calls = "select coalesce(sum(calls), 0)::bigint from pg_stat_statements s \
        join pg_database d on d.oid = s.dbid and d.datname = current_database() \
        where s.query !~* '^(begin|commit|rollback)'";
    sqlx::query_scalar(calls).fetch_one(connection).await
}

/// The engine's statements that this database spent most time on: name, calls, mean and total milliseconds.
pub(crate) async fn statement_times(pool: &PgPool) -> sqlx::Result<Vec<[Value; 4]>> {
    let times = "select coalesce(substring(s.query from 'gen-durable: (\\w+)'), lower(s.query)), sum(s.calls)::bigint, \
            sum(s.total_exec_time) / sum(s.calls), sum(s.total_exec_time) from pg_stat_statements s \
        join pg_database d on d.oid = s.dbid and d.datname = current_database() \
        where s.query ~ 'gen-durable: ' or s.query ~* '^(begin|commit)' group by 1 order by 4 desc limit 12";
    let rows: Vec<(String, i64, f64, f64)> = sqlx::query_as(times).fetch_all(pool).await?;
    Ok(rows
        .into_iter()
        .map(|(name, calls, mean, total)| [name.into(), calls.into(), mean.into(), total.into()])
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: impl IntoIterator<Item = u32>) -> Samples {
        Samples(values.into_iter().map(f64::from).collect())
    }

    #[test]
    fn median_is_the_middle_whatever_the_order() {
        assert_eq!(samples([9, 1, 5]).median(), 5.0);
        assert_eq!(samples([4, 1, 2, 3]).median(), 2.5);
        assert!(samples([]).median().is_nan());
    }

    #[test]
    fn percentile_is_a_sample_that_was_taken() {
        let hundred = samples((1..=100).rev());
        assert_eq!(hundred.percentile(50.0), 50.0);
        assert_eq!(hundred.percentile(99.0), 99.0);
        assert_eq!(hundred.percentile(100.0), 100.0);
        assert_eq!(hundred.percentile(0.0), 1.0);
        assert_eq!(samples([7]).percentile(99.0), 7.0);
        assert!(samples([]).percentile(99.0).is_nan());
    }
}
