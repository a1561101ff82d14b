//! Parents that wait for their children to end.

use super::connection::Transaction;
use super::{decode, query, read, statements};
use crate::store::{Joined, StoreResult};

/// Tells parents of children that ended; `limit` children at most.
pub(super) async fn tell(transaction: &mut Transaction<'_>, now: i64, limit: u32) -> StoreResult<Joined> {
    let telling = query(statements::TELL_PARENTS).bind(now).bind(i64::from(limit));
    let told = transaction.run(statements::TELL_PARENTS, telling).await?;
    let marking = query(statements::MARK_JOINED).bind(i64::from(limit));
    let marked = transaction.run(statements::MARK_JOINED, marking).await?;
    let queues = decode(statements::TELL_PARENTS, read::ready_queues(&told.rows))?;
    if marked.affected < u64::from(limit) {
        return Ok(Joined { queues, left: false });
    }
    let unjoined = transaction.run(statements::UNJOINED, query(statements::UNJOINED)).await?;
    let left = decode(statements::UNJOINED, read::is_so(&unjoined.rows))?;
    Ok(Joined { queues, left })
}

/// Tells parents of all children that ended: those that did in this transaction.
pub(super) async fn tell_all(transaction: &mut Transaction<'_>, now: i64) -> StoreResult<Joined> {
    tell(transaction, now, u32::MAX).await
}
