//! Instances with correlation keys.

use super::connection::{Answer, Connections, Durability, Query, Transaction};
use super::statements::Statement;
use super::{batch, decode, query, read, statements};
use crate::id::InstanceId;
use crate::store::{Inserted, NewInstance, StoreResult};

/// How many instances of a key are found at most.
const FOUND: i64 = 10;

/// Inserts instances unless their keys are taken.
pub(super) async fn insert(
    connections: &Connections,
    now: i64,
    instances: &[NewInstance],
) -> StoreResult<Vec<Inserted>> {
    if instances.is_empty() {
        return Ok(Vec::new());
    }
    let answers = connections.write(Durability::Durable, statements(now, instances)).await?;
    inserted(instances, answers.into_iter().last())
}

/// Likewise, in somebody's transaction.
pub(super) async fn insert_in(
    transaction: &mut Transaction<'_>,
    now: i64,
    instances: &[NewInstance],
) -> StoreResult<Vec<Inserted>> {
    if instances.is_empty() {
        return Ok(Vec::new());
    }
    let mut last = None;
    for (statement, query) in statements(now, instances) {
        last = Some(transaction.run(statement, query).await?);
    }
    inserted(instances, last)
}

/// The statements that insert, of which the last one says who has the keys.
fn statements(now: i64, instances: &[NewInstance]) -> Vec<(Statement, Query)> {
    let insert = |chunk| (statements::INSERT_KEYED, query(statements::INSERT_KEYED).bind(now).bind(chunk));
    let mut statements: Vec<_> = batch::keyed_inserts(instances, now).into_iter().map(insert).collect();
    statements.push((statements::HOLDERS, query(statements::HOLDERS).bind(batch::keys(instances))));
    statements
}

fn inserted(instances: &[NewInstance], holders: Option<Answer>) -> StoreResult<Vec<Inserted>> {
    let holders = decode(statements::HOLDERS, read::ids(&holders.unwrap_or_default().rows))?;
    let inserted = |(row, holder): (&NewInstance, InstanceId)| {
        if holder == row.id { Inserted::Created } else { Inserted::Exists(holder) }
    };
    Ok(instances.iter().zip(holders).map(inserted).collect())
}

/// The instances with a key.
pub(super) async fn find(connections: &Connections, family: &str, key: &str) -> StoreResult<Vec<InstanceId>> {
    let statement = statements::FIND;
    let asking = query(statement).bind(family.to_owned()).bind(key.to_owned()).bind(FOUND);
    decode(statement, read::ids(&connections.read(statement, asking).await?))
}
