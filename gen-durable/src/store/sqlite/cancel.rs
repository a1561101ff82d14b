//! Instances that somebody wants to end, and what they take with them.

use sqlx::Row;

use super::connection::{Connections, Durability, Transaction};
use super::{batch, decode, join, query, read, statements};
use crate::id::{InstanceId, WorkerId};
use crate::store::{Cancelling, Cascaded, Held, Joined, Reclaimed, Status, StoreResult};

/// Cancels an instance, unless it has ended.
pub(super) async fn one(
    connections: &Connections,
    now: i64,
    id: InstanceId,
    cascade: bool,
) -> StoreResult<(Cancelling, Joined)> {
    let mut turn = connections.turn(Durability::Durable).await?;
    let mut transaction = turn.begin().await?;
    let cancelled = one_in(&mut transaction, now, id, cascade).await?;
    transaction.commit().await?;
    Ok(cancelled)
}

/// Likewise, in a transaction that holds the write lock.
pub(super) async fn one_in(
    transaction: &mut Transaction<'_>,
    now: i64,
    id: InstanceId,
    cascade: bool,
) -> StoreResult<(Cancelling, Joined)> {
    let mut joined = Joined::default();
    let rows = transaction.run(statements::STANDS, query(statements::STANDS).bind(id.as_uuid())).await?.rows;
    let answer = match read::stands(&rows)? {
        None => Cancelling::NotFound,
        Some(status) if status.is_terminal() => {
            if cascade {
                let taking = query(statements::TAKE_CHILDREN).bind(id.as_uuid());
                transaction.run(statements::TAKE_CHILDREN, taking).await?;
            }
            Cancelling::Ended(status)
        }
        Some(Status::Executing) => {
            ask(transaction, &[id], cascade).await?;
            Cancelling::Asked
        }
        Some(_) => {
            let (cancelled, told) = cancel(transaction, now, &[id], cascade).await?;
            joined = told;
            Cancelling::Cancelled { watched: cancelled.iter().any(|(_, watched)| *watched) }
        }
    };
    Ok((answer, joined))
}

/// Cancels live children of instances that ended and take their children with them.
pub(super) async fn children(connections: &Connections, now: i64, limit: u32) -> StoreResult<Cascaded> {
    // A look that finds nothing writes nothing.
    let rows = connections.read(statements::CASCADING, query(statements::CASCADING)).await?;
    if !decode(statements::CASCADING, read::is_so(&rows))? {
        return Ok(Cascaded::default());
    }
    let mut turn = connections.turn(Durability::Durable).await?;
    let mut transaction = turn.begin().await?;
    let orphans = query(statements::ORPHANS).bind(i64::from(limit));
    let rows = transaction.run(statements::ORPHANS, orphans).await?.rows;
    let orphans = decode(statements::ORPHANS, read::ids(&rows))?;
    let asked = ask(&mut transaction, &orphans, true).await?;
    let (cancelled, _) = cancel(&mut transaction, now, &orphans, true).await?;
    transaction.run(statements::CHILDLESS, query(statements::CHILDLESS)).await?;
    let rows = transaction.run(statements::CASCADING, query(statements::CASCADING)).await?.rows;
    let left = decode(statements::CASCADING, read::is_so(&rows))?;
    transaction.commit().await?;
    Ok(Cascaded { cancelled: cancelled.into_iter().map(|(id, _)| id).collect(), asked, left })
}

/// Returns rows of dead or missing workers to their queues; those that were to be cancelled are.
pub(super) async fn reclaim(connections: &Connections, now: i64, limit: u32) -> StoreResult<Vec<Reclaimed>> {
    let mut turn = connections.turn(Durability::Durable).await?;
    let mut transaction = turn.begin().await?;
    let reclaiming = query(statements::RECLAIM).bind(i64::from(limit)).bind(now);
    let rows = transaction.run(statements::RECLAIM, reclaiming).await?.rows;
    let cancelled = decode(statements::RECLAIM, read::cancelled(&rows))?;
    ended(&mut transaction, now, &cancelled).await?;
    transaction.commit().await?;
    decode(statements::RECLAIM, read::reclaimed(&rows))
}

/// Hands rows back to their queue where the worker still owns them; those that were to be cancelled are.
pub(super) async fn release(
    connections: &Connections,
    now: i64,
    worker: WorkerId,
    held: &[Held],
) -> StoreResult<u64> {
    let mut turn = connections.turn(Durability::Durable).await?;
    let mut transaction = turn.begin().await?;
    let rows = batch::held(held.iter().copied());
    let releasing = query(statements::RELEASE).bind(worker.0).bind(rows).bind(now);
    let rows = transaction.run(statements::RELEASE, releasing).await?.rows;
    let cancelled = decode(statements::RELEASE, read::cancelled(&rows))?;
    ended(&mut transaction, now, &cancelled).await?;
    transaction.commit().await?;
    Ok(rows.len() as u64)
}

/// Asks whoever runs instances to end them; returns those that execute.
async fn ask(
    transaction: &mut Transaction<'_>,
    ids: &[InstanceId],
    cascade: bool,
) -> StoreResult<Vec<InstanceId>> {
    let asking = query(statements::ASK_TO_CANCEL).bind(batch::ids(ids)).bind(cascade);
    let rows = transaction.run(statements::ASK_TO_CANCEL, asking).await?.rows;
    decode(statements::ASK_TO_CANCEL, read::ids(&rows))
}

/// Cancels instances that live and do not execute; returns them, and whether they are watched.
async fn cancel(
    transaction: &mut Transaction<'_>,
    now: i64,
    ids: &[InstanceId],
    cascade: bool,
) -> StoreResult<(Vec<(InstanceId, bool)>, Joined)> {
    let cancelling = query(statements::CANCEL).bind(now).bind(batch::ids(ids)).bind(cascade);
    let rows = transaction.run(statements::CANCEL, cancelling).await?.rows;
    let ids = decode(statements::CANCEL, read::ids(&rows))?;
    let joined = ended(transaction, now, &ids).await?;
    let watched = rows.iter().map(|row| Ok(row.try_get::<i64, _>(1)? != 0)).collect();
    let watched: Vec<bool> = decode(statements::CANCEL, watched)?;
    Ok((ids.into_iter().zip(watched).collect(), joined))
}

/// What the end of instances brings with it.
async fn ended(transaction: &mut Transaction<'_>, now: i64, ids: &[InstanceId]) -> StoreResult<Joined> {
    if ids.is_empty() {
        return Ok(Joined::default());
    }
    let clearing = query(statements::CLEAR_INBOX).bind(batch::ids(ids));
    transaction.run(statements::CLEAR_INBOX, clearing).await?;
    join::tell_all(transaction, now).await
}
