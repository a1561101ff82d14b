//! Rows into records.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::failure::{classify, unknown};
use crate::id::{InstanceId, MachineId, WorkerId};
use crate::store::{
    Cancelling, Cascaded, ChildRecord, Claimed, Claims, Count, Delivered, Held, Joined, Letter, Mail,
    Promoted, Reclaimed, Retrying, Snapshot, Status, StoreResult, WorkerBeat,
};

/// When to look again for due rows that somebody else held.
const HELD_DUE: Duration = Duration::from_millis(50);

/// The rows of `claim.sql`: those that were taken, or one of nulls, which says that suspects were left.
pub(super) fn claims(rows: &[PgRow], queue: &Arc<str>, claim: i64) -> sqlx::Result<Claims> {
    let left_suspects = rows.first().map_or(Ok(false), |row| row.try_get(9))?;
    let taken = rows.iter().filter(|row| !matches!(row.try_get::<Option<Uuid>, _>(0), Ok(None)));
    let rows = taken.map(|row| claimed(row, queue, claim)).collect::<sqlx::Result<_>>()?;
    Ok(Claims { rows, left_suspects, look_again: None })
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
        is_child: row.try_get(10)?,
        round: row.try_get(11)?,
        mail: mail(row)?,
    })
}

/// What a claimed row waited for, if it did or was sent something; the letters follow.
fn mail(row: &PgRow) -> sqlx::Result<Option<Arc<Mail>>> {
    let awaits: Option<Vec<String>> = row.try_get(13)?;
    let keeps_keys: bool = row.try_get(16)?;
    if awaits.is_none() && count(row, 12)? == 0 && !keeps_keys {
        return Ok(None);
    }
    let seen: Option<i64> = row.try_get(15)?;
    Ok(Some(Arc::new(Mail {
        awaits: awaits.unwrap_or_default(),
        timed_out: row.try_get(14)?,
        seen: seen.unwrap_or_default(),
        ..Mail::default()
    })))
}

/// The ids of claimed rows that were sent something.
pub(super) fn recipients(rows: &[PgRow]) -> sqlx::Result<Vec<Uuid>> {
    let mut ids = Vec::new();
    for row in rows {
        if row.try_get::<Option<i32>, _>(12)?.is_some_and(|inbox| inbox > 0) {
            ids.push(row.try_get(0)?);
        }
    }
    Ok(ids)
}

/// Rows of `inbox.sql`: the letters of each instance, and the number of its last one.
pub(super) fn letters(rows: &[PgRow]) -> sqlx::Result<HashMap<InstanceId, (Vec<Letter>, i64)>> {
    let mut inboxes: HashMap<InstanceId, (Vec<Letter>, i64)> = HashMap::new();
    for row in rows {
        let id: Uuid = row.try_get(0)?;
        let (letters, latest) = inboxes.entry(id.into()).or_default();
        *latest = row.try_get(4)?;
        letters.push(Letter { seq: row.try_get(1)?, name: row.try_get(2)?, payload: row.try_get(3)? });
    }
    Ok(inboxes)
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
            awaits: row.try_get::<Option<Vec<String>>, _>(19)?.unwrap_or_default(),
            inbox: count(row, 20)?,
            children_pending: row.try_get::<Option<i32>, _>(21)?.unwrap_or_default().unsigned_abs(),
            parent: row.try_get::<Option<Uuid>, _>(22)?.map(InstanceId::from),
            correlation_key: row.try_get(23)?,
            cancel_requested: row.try_get(24)?,
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

/// A row of `children.sql`.
pub(super) fn child(row: &PgRow) -> StoreResult<ChildRecord> {
    let status = status(row, 2)?;
    let read = || -> sqlx::Result<ChildRecord> {
        Ok(ChildRecord {
            id: InstanceId::from(row.try_get::<Uuid, _>(0)?),
            version: version(row, 1)?,
            status,
            output: row.try_get(3)?,
            error: row.try_get(4)?,
        })
    };
    read().map_err(|error| classify("children", error))
}

/// A row of `signal.sql`.
pub(super) fn delivered(row: &PgRow) -> StoreResult<Delivered> {
    let read = || -> sqlx::Result<(&str, Option<String>)> { Ok((row.try_get(1)?, row.try_get(2)?)) };
    let (fate, woke) = read().map_err(|error| classify("signal", error))?;
    Ok(match fate {
        "stored" => Delivered::Stored { woke },
        "repeated" => Delivered::Repeated,
        "locked" => Delivered::Locked,
        "ambiguous" => Delivered::Ambiguous,
        _ => Delivered::NoTarget,
    })
}

/// The row of `cancel.sql`.
pub(super) fn cancelling(row: &PgRow) -> StoreResult<Cancelling> {
    let was = optional_status(row, 0)?;
    let read = || -> sqlx::Result<(Option<bool>, bool)> { Ok((row.try_get(1)?, row.try_get(2)?)) };
    let (watched, is_there) = read().map_err(|error| classify("cancel", error))?;
    Ok(match (was, is_there) {
        (Some(Status::Executing), _) => Cancelling::Asked,
        (Some(was), _) if was.is_terminal() => Cancelling::Ended(was),
        (Some(_), _) => Cancelling::Cancelled { watched: watched.unwrap_or_default() },
        (None, true) => Cancelling::Locked,
        (None, false) => Cancelling::NotFound,
    })
}

/// The row of `retry.sql`.
pub(super) fn retrying(row: &PgRow) -> StoreResult<Retrying> {
    let was = optional_status(row, 0)?;
    let read = || -> sqlx::Result<(Option<String>, bool)> { Ok((row.try_get(1)?, row.try_get(2)?)) };
    let (queue, is_there) = read().map_err(|error| classify("retry", error))?;
    Ok(match (was, queue, is_there) {
        (_, Some(queue), _) => Retrying::Ready(queue),
        (Some(Status::Failed), None, _) | (None, None, true) => Retrying::Locked,
        (Some(was), None, _) => Retrying::NotFailed(was),
        (None, None, false) => Retrying::NotFound,
    })
}

/// The row of `tell_parents.sql`.
pub(super) fn joined(row: &PgRow) -> sqlx::Result<Joined> {
    Ok(Joined { queues: row.try_get(0)?, left: row.try_get(1)? })
}

/// The row of `cascade.sql`.
pub(super) fn cascaded(row: &PgRow) -> sqlx::Result<Cascaded> {
    let ids = |column| -> sqlx::Result<Vec<InstanceId>> {
        Ok(row.try_get::<Vec<Uuid>, _>(column)?.into_iter().map(InstanceId::from).collect())
    };
    Ok(Cascaded { cancelled: ids(0)?, asked: ids(1)?, left: row.try_get(2)? })
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

pub(super) fn status(row: &PgRow, column: usize) -> StoreResult<Status> {
    let text: &str = row.try_get(column).map_err(|error| classify("status", error))?;
    Status::parse(text)
        .ok_or_else(|| unknown("status", format_args!("the status `{text}` is not known here")))
}

fn optional_status(row: &PgRow, column: usize) -> StoreResult<Option<Status>> {
    let text: Option<&str> = row.try_get(column).map_err(|error| classify("status", error))?;
    text.map(|_| status(row, column)).transpose()
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
