//! Failed instances that run again.

use sqlx::Row;

use super::connection::{Connections, Durability};
use super::{decode, query, read, statements};
use crate::id::InstanceId;
use crate::store::{Retrying, Status, StoreResult};

/// Makes a failed instance ready again.
pub(super) async fn failed(connections: &Connections, now: i64, id: InstanceId) -> StoreResult<Retrying> {
    let id = id.as_uuid();
    let mut turn = connections.turn(Durability::Durable).await?;
    let mut transaction = turn.begin().await?;
    let rows = transaction.run(statements::STANDS, query(statements::STANDS).bind(id)).await?.rows;
    match read::stands(&rows)? {
        Some(Status::Failed) => {}
        Some(status) => return Ok(Retrying::NotFailed(status)),
        None => return Ok(Retrying::NotFound),
    }
    let rows = transaction.run(statements::KEY_TAKEN, query(statements::KEY_TAKEN).bind(id)).await?.rows;
    if let Some(holder) = decode(statements::KEY_TAKEN, read::ids(&rows))?.first() {
        return Ok(Retrying::KeyTaken(*holder));
    }
    let rejoined = transaction.run(statements::REJOIN, query(statements::REJOIN).bind(id)).await?;
    let retrying = query(statements::RETRY).bind(now).bind(id).bind(rejoined.affected > 0);
    let rows = transaction.run(statements::RETRY, retrying).await?.rows;
    transaction.commit().await?;
    let queue = rows.first().map_or(Err(sqlx::Error::RowNotFound), |row| row.try_get(0));
    Ok(Retrying::Ready(decode(statements::RETRY, queue)?))
}
