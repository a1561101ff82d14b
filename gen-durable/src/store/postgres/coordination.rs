//! What reaches beyond one row: signals, children, keys, cancelling.

use sqlx::Row;
use uuid::Uuid;

use super::connection::Session;
use super::failure::{is_duplicate, is_lock_timeout};
use super::statements::Statement;
use super::{PostgresStore, Query, decode, insert, read};
use crate::id::InstanceId;
use crate::store::{
    Cancelling, Cascaded, ChildRecord, Delivered, Inserted, Joined, NewInstance, NewSignal, Parent, Retrying,
    StoreResult, Target,
};

/// How often an insert is tried again when the instance that had its key ended in between.
const KEY_TRIES: u32 = 10;

impl PostgresStore {
    pub(super) async fn insert_with_keys(&self, instances: &[NewInstance]) -> StoreResult<Vec<Inserted>> {
        if instances.is_empty() {
            return Ok(Vec::new());
        }
        let mut session = self.common.begin().await?;
        match self.insert_keys(&mut session, &self.statements.insert_keyed, instances).await {
            Err(error) if is_lock_timeout(&error) => {
                // Not closed, as after other errors: this is tried again and again.
                session.rollback().await;
                Ok(vec![Inserted::Locked; instances.len()])
            }
            Err(error) => Err(error),
            Ok(inserted) => {
                session.commit().await?;
                Ok(inserted)
            }
        }
    }

    /// Inserts instances in a transaction, unless their keys are taken.
    pub(super) async fn insert_keys(
        &self,
        session: &mut Session<'_>,
        statement: &Statement,
        instances: &[NewInstance],
    ) -> StoreResult<Vec<Inserted>> {
        let mut fates: Vec<Option<Inserted>> = vec![None; instances.len()];
        for _ in 0..KEY_TRIES {
            let open: Vec<usize> = (0..instances.len()).filter(|place| fates[*place].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let rows: Vec<&NewInstance> = open.iter().map(|place| &instances[*place]).collect();
            let mut created = std::collections::HashSet::new();
            for chunk in insert::chunks(&rows) {
                let answer = session.rows(statement, |query| insert::bind_related(chunk, query)).await?;
                for row in &answer {
                    created.insert(decode(statement, || row.try_get::<Uuid, _>(0))?);
                }
            }
            let missed: Vec<usize> = open
                .into_iter()
                .filter(|place| {
                    let is_created = created.contains(&instances[*place].id.as_uuid());
                    if is_created {
                        fates[*place] = Some(Inserted::Created);
                    }
                    !is_created
                })
                .collect();
            for (place, holder) in self.holders(session, instances, &missed).await? {
                // One of an earlier try whose answer was lost is here under its own id.
                fates[place] = Some(match holder == instances[place].id {
                    true => Inserted::Created,
                    false => Inserted::Exists(holder),
                });
            }
        }
        // Keys that change hands faster than they can be read.
        Ok(fates.into_iter().map(|fate| fate.unwrap_or(Inserted::Locked)).collect())
    }

    /// Who has the keys of these instances.
    async fn holders(
        &self,
        session: &mut Session<'_>,
        instances: &[NewInstance],
        places: &[usize],
    ) -> StoreResult<Vec<(usize, InstanceId)>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let statement = &self.statements.holders;
        let ids: Vec<Uuid> = places.iter().map(|place| instances[*place].id.as_uuid()).collect();
        let keys = || places.iter().map(|place| instances[*place].key.as_ref());
        let families: Vec<Option<&str>> = keys().map(|key| key.map(|key| key.family)).collect();
        let texts: Vec<Option<&str>> = keys().map(|key| key.map(|key| key.key.as_str())).collect();
        let rows = session.rows(statement, |query| query.bind(ids).bind(families).bind(texts)).await?;
        let holder = |row: &sqlx::postgres::PgRow| {
            let place = usize::try_from(row.try_get::<i64, _>(0)?).unwrap_or(1) - 1;
            Ok((places[place], InstanceId::from(row.try_get::<Uuid, _>(1)?)))
        };
        decode(statement, || rows.iter().map(holder).collect())
    }

    pub(super) async fn find_by_key(&self, family: &str, key: &str) -> StoreResult<Vec<InstanceId>> {
        let statement = &self.statements.find;
        let rows = self.common.rows(statement, |query| query.bind(family).bind(key)).await?;
        decode(statement, || rows.iter().map(|row| Ok(row.try_get::<Uuid, _>(0)?.into())).collect())
    }

    pub(super) async fn send_signals(&self, signals: &[NewSignal]) -> StoreResult<Vec<Delivered>> {
        let statement = &self.statements.signal;
        let rows = self.signal.rows(statement, |query| bind_signals(signals, query)).await?;
        let mut fates: Vec<Delivered> = rows.iter().map(read::delivered).collect::<StoreResult<_>>()?;
        // An instance with the key ended between the look for it and its lock; another may have the key by now.
        let again: Vec<usize> = (0..signals.len())
            .filter(|place| {
                matches!(signals[*place].target, Target::Key(_)) && fates[*place] == Delivered::NoTarget
            })
            .collect();
        if !again.is_empty() {
            let signals: Vec<NewSignal> = again.iter().map(|place| signals[*place].clone()).collect();
            let rows = self.signal.rows(statement, |query| bind_signals(&signals, query)).await?;
            for (place, row) in again.into_iter().zip(&rows) {
                fates[place] = read::delivered(row)?;
            }
        }
        Ok(fates)
    }

    pub(super) async fn cancel_one(
        &self,
        session: &mut Session<'_>,
        statement: &Statement,
        id: InstanceId,
        cascade: bool,
    ) -> StoreResult<(Cancelling, Joined)> {
        let row = session.row(statement, |query| query.bind(id.as_uuid()).bind(cascade)).await?;
        let cancelling = read::cancelling(&row)?;
        let joined = match cancelling {
            Cancelling::Cancelled { .. } => self.tell_parents(session, vec![id.as_uuid()]).await?,
            _ => Joined::default(),
        };
        Ok((cancelling, joined))
    }

    /// Tells the parents of children that have ended.
    pub(super) async fn tell_parents(
        &self,
        session: &mut Session<'_>,
        mut children: Vec<Uuid>,
    ) -> StoreResult<Joined> {
        if children.is_empty() {
            return Ok(Joined::default());
        }
        children.sort_unstable();
        let statement = &self.statements.tell_parents;
        let row = session.row(statement, |query| query.bind(children)).await?;
        decode(statement, || read::joined(&row))
    }

    pub(super) async fn cascade_some(&self, limit: u32) -> StoreResult<Cascaded> {
        let statement = &self.statements.cascade;
        let mut session = self.common.begin().await?;
        let row = session.row(statement, |query| query.bind(i64::from(limit))).await?;
        let cascaded = decode(statement, || read::cascaded(&row))?;
        let ended = cascaded.cancelled.iter().map(|id| id.as_uuid()).collect();
        self.tell_parents(&mut session, ended).await?;
        session.commit().await?;
        Ok(cascaded)
    }

    pub(super) async fn retry_one(&self, id: InstanceId) -> StoreResult<Retrying> {
        let statement = &self.statements.retry;
        match self.common.row(statement, |query| query.bind(id.as_uuid())).await {
            Ok(row) => read::retrying(&row),
            Err(error) if is_duplicate(&error) => self.key_taken(id).await,
            Err(error) => Err(error),
        }
    }

    /// Who has the key of an instance that cannot live again.
    async fn key_taken(&self, id: InstanceId) -> StoreResult<Retrying> {
        let Some((snapshot, _)) = self.read(&[id.as_uuid()]).await?.into_iter().next() else {
            return Ok(Retrying::NotFound);
        };
        let statement = &self.statements.holders;
        let bind = |query: Query| {
            query.bind([Uuid::nil()]).bind([&*snapshot.machine]).bind([snapshot.correlation_key.as_deref()])
        };
        let rows = self.common.rows(statement, bind).await?;
        let holder = decode(statement, || rows.first().map(|row| row.try_get::<Uuid, _>(1)).transpose())?;
        // It may have ended meanwhile: then the next try succeeds.
        Ok(holder.map_or(Retrying::Locked, |holder| Retrying::KeyTaken(holder.into())))
    }

    pub(super) async fn join_some(&self, limit: u32) -> StoreResult<Joined> {
        let statement = &self.statements.unjoined;
        let rows = self.common.rows(statement, |query| query.bind(i64::from(limit))).await?;
        let children: Vec<Uuid> = decode(statement, || rows.iter().map(|row| row.try_get(0)).collect())?;
        if children.is_empty() {
            return Ok(Joined::default());
        }
        let cut_short = children.len() >= limit as usize;
        let mut session = self.common.begin().await?;
        let joined = self.tell_parents(&mut session, children).await?;
        session.commit().await?;
        Ok(Joined { left: joined.left || cut_short, ..joined })
    }

    pub(super) async fn read_children(
        &self,
        parent: Parent,
        machine: &str,
        after: Option<InstanceId>,
        limit: u32,
    ) -> StoreResult<Vec<ChildRecord>> {
        let bind = |query: Query| {
            query
                .bind(parent.id.as_uuid())
                .bind(parent.round)
                .bind(machine)
                .bind(after.map(InstanceId::as_uuid))
                .bind(i64::from(limit))
        };
        let rows = self.common.rows(&self.statements.children, bind).await?;
        rows.iter().map(read::child).collect()
    }
}

/// In the order of the parameters of `signal.sql`.
pub(super) fn bind_signals(signals: &[NewSignal], query: Query) -> Query {
    let id = |signal: &NewSignal| match &signal.target {
        Target::Id(id) => Some(id.as_uuid()),
        Target::Key(_) => None,
    };
    let key = |signal: &NewSignal| match &signal.target {
        Target::Id(_) => None,
        Target::Key(key) => Some(key.clone()),
    };
    let text = |of: fn(&NewSignal) -> &str| signals.iter().map(of).collect::<Vec<_>>();
    query
        .bind(text(|signal| &signal.machine))
        .bind(signals.iter().map(id).collect::<Vec<_>>())
        .bind(signals.iter().map(key).collect::<Vec<_>>())
        .bind(text(|signal| &signal.name))
        .bind(text(|signal| &signal.payload))
        .bind(signals.iter().map(|signal| signal.dedup_key.as_deref()).collect::<Vec<_>>())
}
