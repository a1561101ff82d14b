//! Rows into records.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::failure::{classify, unknown};
use crate::id::{InstanceId, MachineId, WorkerId};
use crate::store::{
    Claimed, Claims, Count, Held, Promoted, Reclaimed, Snapshot, Status, StoreResult, WorkerBeat,
};

/// When to look again for due rows that somebody else held.
const HELD_DUE: Duration = Duration::from_millis(50);

/// The rows of `claim.sql`: those that were taken, or one of nulls, which says that suspects were left.
pub(super) fn claims(rows: &[PgRow], queue: &Arc<str>, claim: i64) -> sqlx::Result<Claims> {
    let left_suspects = rows.first().map_or(Ok(false), |row| row.try_get(9))?;
    let taken = rows.iter().filter(|row| !matches!(row.try_get::<Option<Uuid>, _>(0), Ok(None)));
    let rows = taken.map(|row| claimed(row, queue, claim)).collect::<sqlx::Result<_>>()?;
    Ok(Claims { rows, left_suspects })
}

fn claimed(row: &PgRow, queue: &Arc<str>, claim: i64) -> sqlx::Result<Claimed> {
    Ok(Claimed {
        id: InstanceId::from(row.try_get::<Uuid, _>(0)?),
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
    })
}

/// A row of `held.sql`.
pub(super) fn held(row: &PgRow) -> sqlx::Result<Held> {
    let id: Uuid = row.try_get(0)?;
    Ok(Held { id: id.into(), claim: row.try_get(1)?, revision: row.try_get(2)? })
}

/// A row of `workers.sql`.
pub(super) fn beat(row: &PgRow) -> sqlx::Result<WorkerBeat> {
    Ok(WorkerBeat {
        id: WorkerId(row.try_get(0)?),
        engine: row.try_get(1)?,
        node: row.try_get(2)?,
        beat: row.try_get(3)?,
    })
}

/// A row of `reclaim.sql`.
pub(super) fn reclaimed(row: &PgRow) -> sqlx::Result<Reclaimed> {
    Ok(Reclaimed {
        worker: WorkerId(row.try_get(0)?),
        queue: row.try_get(1)?,
        count: row.try_get::<i64, _>(2)?.unsigned_abs(),
    })
}

/// The row of `promote.sql`.
pub(super) fn promoted(row: &PgRow, limit: u32) -> sqlx::Result<Promoted> {
    let count = row.try_get::<i64, _>(0)?.unsigned_abs();
    let next_due = row.try_get::<Option<i64>, _>(2)?.map(|micros| match u64::try_from(micros) {
        Ok(micros) if micros > 0 => Duration::from_micros(micros),
        _ if count >= u64::from(limit) => Duration::ZERO,
        _ => HELD_DUE,
    });
    Ok(Promoted { count, queues: row.try_get(1)?, next_due })
}

/// A row of `probe.sql`, and whether it is watched.
pub(super) fn snapshot(row: &PgRow) -> StoreResult<(Snapshot, bool)> {
    let status = status(row, 5)?;
    let read = || -> sqlx::Result<(Snapshot, bool)> {
        let snapshot = Snapshot {
            id: InstanceId::from(row.try_get::<Uuid, _>(0)?),
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
            created_at: row.try_get(15)?,
            eligible_at: row.try_get(16)?,
            finished_at: row.try_get(17)?,
        };
        Ok((snapshot, row.try_get(18)?))
    };
    read().map_err(|error| classify("probe", error))
}

/// A row of `counts.sql`.
pub(super) fn counted(row: &PgRow) -> StoreResult<Count> {
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

fn status(row: &PgRow, column: usize) -> StoreResult<Status> {
    let text: &str = row.try_get(column).map_err(|error| classify("status", error))?;
    Status::parse(text)
        .ok_or_else(|| unknown("status", format_args!("the status `{text}` is not known here")))
}

/// A counter, which is never negative.
fn count(row: &PgRow, column: usize) -> sqlx::Result<u32> {
    Ok(row.try_get::<i32, _>(column)?.unsigned_abs())
}

/// The version of a machine; 0 when its row is gone, which nothing of ours deletes.
fn version(row: &PgRow, column: usize) -> sqlx::Result<u32> {
    Ok(row
        .try_get::<Option<i64>, _>(column)?
        .and_then(|version| u32::try_from(version).ok())
        .unwrap_or_default())
}
