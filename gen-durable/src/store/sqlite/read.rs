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
    ChildRecord, Claimed, Claims, Count, Flushed, Held, Letter, Mail, Promoted, Reclaimed, Snapshot, Status,
    StoreResult, WorkerBeat,
};

/// Rows of `claim.sql`, which come in any order, by urgency.
///
/// Rows with signals have an empty inbox yet: [`inboxes`] fills it.
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
            is_child: row.try_get::<i64, _>(12)? != 0,
            round: row.try_get(13)?,
            mail: mail(row)?.map(Arc::new),
        };
        claimed.push((urgency, row));
    }
    claimed.sort_by_key(|(urgency, _)| *urgency);
    let rows = claimed.into_iter().map(|(_, row)| row).collect();
    Ok(Claims { rows, left_suspects, look_again: None })
}

fn mail(row: &SqliteRow) -> sqlx::Result<Option<Mail>> {
    let awaits: Option<&str> = row.try_get(14)?;
    if awaits.is_none() && row.try_get::<i64, _>(17)? == 0 {
        return Ok(None);
    }
    Ok(Some(Mail {
        awaits: names(awaits)?,
        timed_out: row.try_get::<i64, _>(15)? != 0,
        seen: row.try_get::<Option<i64>, _>(16)?.unwrap_or_default(),
        inbox: Vec::new(),
        latest: 0,
    }))
}

/// Rows of `inbox.sql` into the mail of the instances at these places.
pub(super) fn inboxes(rows: &[SqliteRow], mails: &mut [&mut Mail]) -> sqlx::Result<()> {
    for row in rows {
        let place = usize::try_from(row.try_get::<i64, _>(0)?).unwrap_or(usize::MAX);
        if let Some(mail) = mails.get_mut(place) {
            let letter = Letter { seq: row.try_get(1)?, name: row.try_get(2)?, payload: row.try_get(3)? };
            mail.inbox.push(letter);
            mail.latest = row.try_get(4)?;
        }
    }
    Ok(())
}

/// Rows of `machines.sql`.
pub(super) fn machines(rows: &[SqliteRow]) -> sqlx::Result<Vec<MachineId>> {
    rows.iter().map(|row| Ok(MachineId(row.try_get(0)?))).collect()
}

/// A row of `held.sql`.
pub(super) fn held(row: &SqliteRow) -> sqlx::Result<Held> {
    Ok(Held { id: id(row, 0)?, claim: row.try_get(1)?, revision: row.try_get(2)? })
}

/// Rows of `flush.sql`, `remove.sql`, `coordinate.sql` and `settle.sql`: id, status and whether it is watched.
pub(super) fn committed(rows: &[SqliteRow]) -> StoreResult<Vec<(InstanceId, Flushed)>> {
    let committed = |row: &SqliteRow| {
        let status = status(row, 1)?;
        let read = || Ok((id(row, 0)?, row.try_get::<i64, _>(2)? != 0));
        let (id, watched) = read().map_err(|error| classify("flush", error))?;
        Ok((id, Flushed::Committed { status, watched }))
    };
    rows.iter().map(committed).collect()
}

/// Rows of `owned.sql`: which instances, and whether they are to be cancelled.
pub(super) fn owned(rows: &[SqliteRow]) -> sqlx::Result<HashMap<InstanceId, bool>> {
    rows.iter().map(|row| Ok((id(row, 0)?, row.try_get::<i64, _>(1)? != 0))).collect()
}

/// Rows that begin with an id.
pub(super) fn ids(rows: &[SqliteRow]) -> sqlx::Result<Vec<InstanceId>> {
    rows.iter().map(|row| id(row, 0)).collect()
}

/// An answer that is one number, as yes or no.
pub(super) fn is_so(rows: &[SqliteRow]) -> sqlx::Result<bool> {
    rows.first().map_or(Ok(false), |row| Ok(row.try_get::<i64, _>(0)? != 0))
}

/// Rows of `tell_parents.sql`: queues on which parents became ready.
pub(super) fn ready_queues(rows: &[SqliteRow]) -> sqlx::Result<Vec<String>> {
    let queues = rows.iter().filter_map(|row| row.try_get(0).transpose());
    let mut queues = queues.collect::<sqlx::Result<Vec<String>>>()?;
    queues.sort_unstable();
    queues.dedup();
    Ok(queues)
}

/// What a signal finds: a row of `targets.sql`.
pub(super) struct Found {
    /// The instance, if a live one is the target.
    pub(super) id: Option<InstanceId>,
    /// Whether another one has the key, too.
    pub(super) is_ambiguous: bool,
    /// Whether the signal's key was used before.
    pub(super) is_repeated: bool,
    pub(super) queue: String,
    /// The signals that it waits for, if it waits.
    pub(super) awaits: Vec<String>,
    /// Whether its machine is set aside.
    pub(super) set_aside: bool,
}

pub(super) fn found(row: &SqliteRow) -> sqlx::Result<Found> {
    Ok(Found {
        id: row.try_get::<Option<Uuid>, _>(0)?.map(InstanceId::from),
        is_ambiguous: row.try_get::<i64, _>(1)? != 0,
        is_repeated: row.try_get::<i64, _>(2)? != 0,
        queue: row.try_get::<Option<String>, _>(3)?.unwrap_or_default(),
        awaits: names(row.try_get(4)?)?,
        set_aside: row.try_get::<i64, _>(5)? != 0,
    })
}

/// A row of `stands.sql`.
pub(super) fn stands(rows: &[SqliteRow]) -> StoreResult<Option<Status>> {
    rows.first().map(|row| status(row, 0)).transpose()
}

/// A row of `children.sql`.
pub(super) fn child(row: &SqliteRow) -> StoreResult<ChildRecord> {
    let status = status(row, 2)?;
    let read = || -> sqlx::Result<ChildRecord> {
        Ok(ChildRecord {
            id: id(row, 0)?,
            version: version(row, 1)?,
            status,
            output: row.try_get(3)?,
            error: row.try_get(4)?,
        })
    };
    read().map_err(|error| classify("children", error))
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

/// Rows of `reclaim.sql` and `release.sql`: those that were cancelled.
pub(super) fn cancelled(rows: &[SqliteRow]) -> sqlx::Result<Vec<InstanceId>> {
    let ids = rows.iter().filter_map(|row| row.try_get::<Option<Uuid>, _>(0).transpose());
    ids.map(|id| id.map(InstanceId::from)).collect()
}

/// Rows of `reclaim.sql`, summed by worker and queue.
pub(super) fn reclaimed(rows: &[SqliteRow]) -> sqlx::Result<Vec<Reclaimed>> {
    let mut counts: HashMap<(i64, String), u64> = HashMap::new();
    for row in rows {
        *counts.entry((row.try_get(1)?, row.try_get(2)?)).or_default() += 1;
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
            // A wait without a timeout is due at the end of time.
            eligible_at: Some(row.try_get(16)?).filter(|micros| *micros != i64::MAX).map(instant),
            finished_at: row.try_get::<Option<i64>, _>(17)?.map(instant),
            awaits: names(row.try_get(18)?)?,
            inbox: count(row, 19)?,
            children_pending: row
                .try_get::<Option<i64>, _>(20)?
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or_default(),
            parent: row.try_get::<Option<Uuid>, _>(21)?.map(InstanceId::from),
            correlation_key: row.try_get(22)?,
            cancel_requested: row.try_get::<i64, _>(23)? != 0,
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

/// Names of signals, of which the database keeps an array.
fn names(array: Option<&str>) -> sqlx::Result<Vec<String>> {
    array.map_or_else(
        || Ok(Vec::new()),
        |array| serde_json::from_str(array).map_err(|error| sqlx::Error::Decode(error.into())),
    )
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
