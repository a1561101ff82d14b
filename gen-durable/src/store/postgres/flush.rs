//! Committing outcomes: as parallel arrays, in the shortest way that each admits.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::connection::{Query, Session};
use super::failure::classify;
use super::statements::Statements;
use super::{PostgresStore, insert, read};
use crate::id::WorkerId;
use crate::store::{Commit, Flush, Flushed, Held, Joined, NewInstance, StoreResult, delay_micros};
use crate::transition::Transition;

impl PostgresStore {
    /// Commits outcomes; says of each what became of it.
    pub(super) async fn commit(
        &self,
        worker: WorkerId,
        commits: &[Commit],
        delete: bool,
    ) -> StoreResult<Flush> {
        let mut batch =
            Batch { worker, delete, fates: HashMap::with_capacity(commits.len()), joined: Joined::default() };
        let (wide, plain): (Vec<_>, Vec<_>) = commits.iter().partition(|commit| commit.reaches_out());
        let tells_parents = plain.iter().any(|commit| commit.is_child && commit.transition.is_terminal());
        if wide.is_empty() && !tells_parents {
            if plain.is_empty() {
                return Ok(Flush::default());
            }
            let rows = self
                .flush
                .rows(&self.statements.flush, |query| batch.bind_plain(&Columns::of(&plain), query));
            batch.fates.extend(written(&rows.await?)?);
        } else {
            self.commit_together(&mut batch, &plain, &wide).await?;
        }
        let missed = batch.missed(commits);
        if !missed.is_empty() {
            let settled = self.settle(worker, &missed).await?;
            // Rows that were sent something while their steps ran: what looked plain is not.
            let involved: Vec<&Commit> = missed
                .into_iter()
                .filter(|commit| {
                    settled.get(&commit.held.id.as_uuid()).is_some_and(|missed| missed.reaches_out)
                        && !commit.reaches_out()
                })
                .collect();
            batch.fates.extend(settled.into_iter().map(|(id, missed)| (id, missed.fate)));
            if !involved.is_empty() {
                self.commit_together(&mut batch, &[], &involved).await?;
            }
        }
        let Batch { fates, joined, .. } = batch;
        let fate = |commit: &Commit| fates.get(&commit.held.id.as_uuid()).copied().unwrap_or(Flushed::Stale);
        Ok(Flush { fates: commits.iter().map(fate).collect(), joined })
    }

    /// Commits outcomes in one transaction with what they do to others.
    async fn commit_together(
        &self,
        batch: &mut Batch,
        plain: &[&Commit],
        wide: &[&Commit],
    ) -> StoreResult<()> {
        let mut session = self.flush.begin().await?;
        let (fates, joined) =
            self.write_together(&mut session, batch.worker, batch.delete, plain, wide).await?;
        session.commit().await?;
        batch.fates.extend(fates);
        batch.joined.queues.extend(joined.queues);
        batch.joined.left |= joined.left;
        Ok(())
    }

    /// Writes outcomes, and what they do to others, in a transaction; returns those that were written.
    pub(super) async fn write_together(
        &self,
        session: &mut Session<'_>,
        worker: WorkerId,
        delete: bool,
        plain: &[&Commit],
        wide: &[&Commit],
    ) -> StoreResult<(HashMap<Uuid, Flushed>, Joined)> {
        let Statements { flush, coordinate, insert_children, .. } = &self.statements;
        let mut fates = HashMap::new();
        if !plain.is_empty() {
            let columns = Columns::of(plain);
            let bind = |query: Query| columns.bind(query.bind(worker.0).bind(delete));
            fates.extend(written(&session.rows(flush, bind).await?)?);
        }
        if !wide.is_empty() {
            let (columns, more) = (Columns::of(wide), WideColumns::of(wide));
            let bind = |query: Query| {
                let query = more.bind_consumed(query.bind(worker.0).bind(delete));
                more.bind(columns.bind(query))
            };
            fates.extend(written(&session.rows(coordinate, bind).await?)?);
        }
        let is_written = |commit: &&&Commit| fates.contains_key(&commit.held.id.as_uuid());
        let goes_on = |commit: &&&Commit| !has_ended(&fates, &commit.held.id.as_uuid());
        let children: Vec<&NewInstance> =
            wide.iter().filter(is_written).filter(goes_on).flat_map(children_of).collect();
        for chunk in insert::chunks(&children) {
            session.rows(insert_children, |query| insert::bind_related(chunk, query)).await?;
        }
        let ended = plain.iter().chain(wide).filter(is_written).filter(|commit| commit.is_child);
        let ended = ended.map(|commit| commit.held.id.as_uuid()).filter(|id| has_ended(&fates, id)).collect();
        let joined = self.tell_parents(session, ended).await?;
        Ok((fates, joined))
    }

    pub(super) async fn settle_in(
        &self,
        session: &mut Session<'_>,
        worker: WorkerId,
        missed: &[&Commit],
    ) -> StoreResult<HashMap<Uuid, Missed>> {
        let columns = HeldColumns::of(missed.iter().map(|commit| commit.held).collect());
        let bind = |query: Query| columns.bind(query.bind(worker.0));
        settled(&session.rows(&self.statements.settle, bind).await?)
    }

    pub(super) async fn settle(
        &self,
        worker: WorkerId,
        missed: &[&Commit],
    ) -> StoreResult<HashMap<Uuid, Missed>> {
        let columns = HeldColumns::of(missed.iter().map(|commit| commit.held).collect());
        let rows =
            self.flush.rows(&self.statements.settle, |query| columns.bind(query.bind(worker.0))).await?;
        settled(&rows)
    }
}

/// A batch on its way, and what has become of it so far.
struct Batch {
    worker: WorkerId,
    delete: bool,
    fates: HashMap<Uuid, Flushed>,
    joined: Joined,
}

impl Batch {
    fn bind_plain(&self, columns: &Columns<'_>, query: Query) -> Query {
        columns.bind(query.bind(self.worker.0).bind(self.delete))
    }

    /// The outcomes that were not committed so far.
    fn missed<'a>(&self, commits: &'a [Commit]) -> Vec<&'a Commit> {
        commits.iter().filter(|commit| !self.fates.contains_key(&commit.held.id.as_uuid())).collect()
    }
}

/// The children that an outcome inserts.
fn children_of<'a>(commit: &&'a Commit) -> Box<dyn Iterator<Item = &'a NewInstance> + Send + 'a> {
    match &commit.transition {
        Transition::FanOut { children, .. } => Box::new(children.iter().map(|child| &child.instance)),
        _ => Box::new(std::iter::empty()),
    }
}

fn has_ended(fates: &HashMap<Uuid, Flushed>, id: &Uuid) -> bool {
    matches!(fates.get(id), Some(Flushed::Committed { status, .. }) if status.is_terminal())
}

/// A batch of outcomes, column by column.
#[derive(Default)]
pub(super) struct Columns<'a> {
    held: HeldColumns,
    kinds: Vec<&'static str>,
    steps: Vec<Option<&'static str>>,
    payloads: Vec<Option<&'a str>>,
    errors: Vec<Option<&'a str>>,
    delays: Vec<Option<i64>>,
    counted: Vec<bool>,
}

/// What outcomes that reach beyond their rows need besides.
#[derive(Default)]
pub(super) struct WideColumns {
    consumed: Vec<i64>,
    awaits: Vec<Option<String>>,
    seen: Vec<i64>,
    children: Vec<i32>,
    cascades: Vec<bool>,
    consumed_each: Vec<i32>,
}

/// What proves ownership of a batch of rows, column by column.
#[derive(Default)]
pub(super) struct HeldColumns {
    ids: Vec<Uuid>,
    claims: Vec<i64>,
    revisions: Vec<i64>,
}

impl HeldColumns {
    /// Sorted by id: the order in which rows are locked.
    pub(super) fn of(mut held: Vec<Held>) -> Self {
        held.sort_unstable_by_key(|held| held.id);
        let mut columns = Self::default();
        held.into_iter().for_each(|held| columns.push(held));
        columns
    }

    fn push(&mut self, held: Held) {
        self.ids.push(held.id.into());
        self.claims.push(held.claim);
        self.revisions.push(held.revision);
    }

    pub(super) fn bind(&self, query: Query) -> Query {
        query.bind(&self.ids).bind(&self.claims).bind(&self.revisions)
    }
}

impl<'a> Columns<'a> {
    pub(super) fn of(commits: &[&'a Commit]) -> Self {
        let mut columns = Self::default();
        for commit in commits {
            columns.held.push(commit.held);
            columns.push(commit);
        }
        columns
    }

    /// In the order of the parameters of `flush.sql`.
    pub(super) fn bind(&self, query: Query) -> Query {
        self.held
            .bind(query)
            .bind(&self.kinds)
            .bind(&self.steps)
            .bind(&self.payloads)
            .bind(&self.errors)
            .bind(&self.delays)
            .bind(&self.counted)
    }

    fn push(&mut self, commit: &'a Commit) {
        let at_once = Some(Duration::ZERO);
        let (kind, step, payload, error, delay, counted) = match &commit.transition {
            Transition::Next { step, state, delay, .. } => {
                let kind = if commit.keeps_claim { "a" } else { "n" };
                (kind, Some(*step), Some(state.as_str()), None, Some(*delay), false)
            }
            Transition::Wait { step, state, timeout, .. } => {
                ("w", Some(*step), Some(state.as_str()), None, *timeout, false)
            }
            Transition::FanOut { step, state, .. } => {
                ("f", Some(*step), Some(state.as_str()), None, at_once, false)
            }
            Transition::Retry { state, after, error, counted } => {
                ("r", None, state.as_deref(), error.as_deref(), Some(*after), *counted)
            }
            Transition::Done { output } => ("d", None, Some(output.as_str()), None, at_once, false),
            Transition::Stop { reason, .. } => ("s", None, None, Some(reason.as_str()), at_once, false),
            // One that is committed does not come here.
            Transition::Cancel | Transition::Committed(_) => ("c", None, None, None, at_once, false),
        };
        self.kinds.push(kind);
        self.steps.push(step);
        self.payloads.push(payload);
        self.errors.push(error);
        self.delays.push(delay.map(delay_micros));
        self.counted.push(counted);
    }
}

impl WideColumns {
    pub(super) fn of(commits: &[&Commit]) -> Self {
        let mut columns = Self::default();
        for commit in commits {
            columns.consumed.extend(&commit.consumed);
            columns.consumed_each.push(i32::try_from(commit.consumed.len()).unwrap_or(i32::MAX));
            let (mut awaits, mut seen, mut children, mut cascades) = (None, 0, 0, false);
            match &commit.transition {
                // Names always have a JSON text.
                Transition::Wait { signals, seen: last, .. } => {
                    (awaits, seen) = (serde_json::to_string(signals).ok(), *last);
                }
                Transition::FanOut { children: all, .. } => {
                    children = i32::try_from(all.len()).unwrap_or(i32::MAX);
                }
                Transition::Stop { cascade, .. } => cascades = *cascade,
                _ => {}
            }
            columns.awaits.push(awaits);
            columns.seen.push(seen);
            columns.children.push(children);
            columns.cascades.push(cascades);
        }
        columns
    }

    /// The signals that are consumed.
    pub(super) fn bind_consumed(&self, query: Query) -> Query {
        query.bind(&self.consumed)
    }

    /// What follows the columns of `flush.sql` in the parameters of `coordinate.sql`.
    pub(super) fn bind(&self, query: Query) -> Query {
        query
            .bind(&self.awaits)
            .bind(&self.seen)
            .bind(&self.children)
            .bind(&self.cascades)
            .bind(&self.consumed_each)
    }
}

/// What became of the rows that a flush wrote.
pub(super) fn written(rows: &[PgRow]) -> StoreResult<HashMap<Uuid, Flushed>> {
    rows.iter()
        .map(|row| {
            let read = || -> sqlx::Result<(Uuid, bool)> { Ok((row.try_get(0)?, row.try_get(1)?)) };
            let (id, watched) = read().map_err(|error| classify("flush", error))?;
            Ok((id, Flushed::Committed { status: read::status(row, 2)?, watched }))
        })
        .collect()
}

/// What became of an outcome that a flush missed.
pub(super) struct Missed {
    pub(super) fate: Flushed,
    /// Whether the row was sent something meanwhile.
    pub(super) reaches_out: bool,
}

/// What became of rows that a flush missed. Those that are missing here, too, are stale.
pub(super) fn settled(rows: &[PgRow]) -> StoreResult<HashMap<Uuid, Missed>> {
    rows.iter()
        .map(|row| {
            let read = || -> sqlx::Result<(Uuid, bool, bool, bool)> {
                Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(4)?))
            };
            let (id, locked, watched, reaches_out) = read().map_err(|error| classify("settle", error))?;
            let fate = match locked {
                true => Flushed::Locked,
                false => Flushed::Committed { status: read::status(row, 3)?, watched },
            };
            Ok((id, Missed { fate, reaches_out }))
        })
        .collect()
}
