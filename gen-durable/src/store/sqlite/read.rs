//! Rows into records.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::failure::{classify, unknown};
use crate::id::{InstanceId, MachineId, WorkerId};
use crate::store::{
    Claimed, Claims, Count, Flushed, Held, Promoted, Reclaimed, Snapshot, Status, StoreResult, WorkerBeat,
};

/// Rows of `claim.sql`, which come in any order, by urgency.
pub(super) fn claims(rows: &[SqliteRow], queue: &Arc<str>, claim: i64) -> sqlx::Result<Claims> {
    let left_suspects = rows.first().map_or(Ok(0_i64), |row| row.try_get(11))? != 0;
    let mut claimed = Vec::with_capacity(rows.len());
    for row in rows {
        let urgency: (i64, i64) = (row.try_get(9)?, row.try_get(10)?);
        let row = Claimed {
            id: id(row, 0)?,
            machine: MachineId(row.try_get(1)?),
            step: row.try_get(2)?,
            state: row.try_get(3)?,
            queue: Arc::clone(queue),
            claim,
            revision: row.try_get(4)?,
            attempt: count(row, 5)?,
            failures: count(row, 6)?,
            crashes: count(row, 7)?,
            trace_context: row.try_get(8)?,
        };
        claimed.push((urgency, row));
    }
    claimed.sort_by_key(|(urgency, _)| *urgency);
    Ok(Claims { rows: claimed.into_iter().map(|(_, row)| row).collect(), left_suspects })
}

/// A row of `held.sql`.
pub(super) fn held(row: &SqliteRow) -> sqlx::Result<Held> {
    Ok(Held { id: id(row, 0)?, claim: row.try_get(1)?, revision: row.try_get(2)? })
}

/// Rows of `flush.sql`, `remove.sql` and `settle.sql`: id and whether it is watched.
pub(super) fn committed(rows: &[SqliteRow]) -> sqlx::Result<HashMap<InstanceId, Flushed>> {
    rows.iter()
        .map(|row| Ok((id(row, 0)?, Flushed::Committed { watched: row.try_get::<i64, _>(1)? != 0 })))
        .collect()
}

/// A row of `workers.sql`.
pub(super) fn beat(row: &SqliteRow) -> sqlx::Result<WorkerBeat> {
    Ok(WorkerBeat {
        id: WorkerId(row.try_get(0)?),
        engine: row.try_get(1)?,
        node: row.try_get(2)?,
        beat: row.try_get(3)?,
    })
}

/// Rows of `reclaim.sql`, summed by worker and queue.
pub(super) fn reclaimed(rows: &[SqliteRow]) -> sqlx::Result<Vec<Reclaimed>> {
    let mut counts: HashMap<(i64, String), u64> = HashMap::new();
    for row in rows {
        *counts.entry((row.try_get(0)?, row.try_get(1)?)).or_default() += 1;
    }
    let reclaimed = |((worker, queue), count)| Reclaimed { worker: WorkerId(worker), queue, count };
    Ok(counts.into_iter().map(reclaimed).collect())
}

/// Rows of `bring_back.sql`, summed by queue.
pub(super) fn queues(rows: &[SqliteRow]) -> sqlx::Result<Vec<(String, u64)>> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    for row in rows {
        *counts.entry(row.try_get(0)?).or_default() += 1;
    }
    Ok(counts.into_iter().collect())
}

/// Rows of `promote.sql`, and the answer of `due.sql`.
pub(super) fn promoted(promoted: &[SqliteRow], next: Option<i64>, now: i64) -> sqlx::Result<Promoted> {
    let mut queues = promoted.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<Vec<String>>>()?;
    queues.sort_unstable();
    queues.dedup();
    // Not positive where the limit cut the batch short.
    let next_due =
        next.map(|next| Duration::from_micros(u64::try_from(next.saturating_sub(now)).unwrap_or(0)));
    Ok(Promoted { count: promoted.len() as u64, queues, next_due })
}

/// A row of `probe.sql`.
pub(super) fn snapshot(row: &SqliteRow) -> StoreResult<Snapshot> {
    let status = status(row, 5)?;
    let read = || -> sqlx::Result<Snapshot> {
        Ok(Snapshot {
            id: id(row, 0)?,
            machine: row.try_get::<Option<String>, _>(1)?.unwrap_or_default(),
            version: version(row, 2)?,
            step: row.try_get(3)?,
            state: row.try_get(4)?,
            status,
            queue: row.try_get(6)?,
            priority: row.try_get(7)?,
            revision: row.try_get(8)?,
            attempt: count(row, 9)?,
            failures: count(row, 10)?,
            crashes: count(row, 11)?,
            worker: row.try_get::<Option<i64>, _>(12)?.map(WorkerId),
            output: row.try_get(13)?,
            error: row.try_get(14)?,
            created_at: instant(row.try_get(15)?),
            eligible_at: instant(row.try_get(16)?),
            finished_at: row.try_get::<Option<i64>, _>(17)?.map(instant),
        })
    };
    read().map_err(|error| classify("probe", error))
}

/// A row of `counts.sql`.
pub(super) fn counted(row: &SqliteRow) -> StoreResult<Count> {
    let status = status(row, 3)?;
    let read = || -> sqlx::Result<Count> {
        Ok(Count {
            machine: row.try_get::<Option<String>, _>(0)?.unwrap_or_default(),
            version: version(row, 1)?,
            step: row.try_get(2)?,
            status,
            count: row.try_get::<i64, _>(4)?.unsigned_abs(),
        })
    };
    read().map_err(|error| classify("counts", error))
}

fn id(row: &SqliteRow, column: usize) -> sqlx::Result<InstanceId> {
    Ok(InstanceId::from(row.try_get::<Uuid, _>(column)?))
}

fn status(row: &SqliteRow, column: usize) -> StoreResult<Status> {
    let text: &str = row.try_get(column).map_err(|error| classify("status", error))?;
    Status::parse(text)
        .ok_or_else(|| unknown("status", format_args!("the status `{text}` is not known here")))
}

/// A counter, which is never negative.
fn count(row: &SqliteRow, column: usize) -> sqlx::Result<u32> {
    Ok(u32::try_from(row.try_get::<i64, _>(column)?).unwrap_or(u32::MAX))
}

/// The version of a machine; 0 when its row is gone, which nothing of ours deletes.
fn version(row: &SqliteRow, column: usize) -> sqlx::Result<u32> {
    Ok(row
        .try_get::<Option<i64>, _>(column)?
        .and_then(|version| u32::try_from(version).ok())
        .unwrap_or_default())
}

/// An instant that we wrote; what nobody can have written is shown as the epoch.
fn instant(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or_default()
}
