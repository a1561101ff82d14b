//! Outcomes as parallel arrays, and what became of them.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::connection::Query;
use crate::outcome::Transition;
use crate::store::{Commit, Flushed, Held, delay_micros};

/// A batch of outcomes, column by column.
#[derive(Default)]
pub(super) struct Columns<'a> {
    held: HeldColumns,
    kinds: Vec<&'static str>,
    steps: Vec<Option<&'static str>>,
    payloads: Vec<Option<&'a str>>,
    errors: Vec<Option<&'a str>>,
    delays: Vec<i64>,
    counted: Vec<bool>,
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
    pub(super) fn of(commits: &'a [Commit]) -> Self {
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
        let (kind, step, payload, error, delay, counted) = match &commit.transition {
            Transition::Next { step, state, delay, .. } => {
                let kind = if commit.keeps_claim { "a" } else { "n" };
                (kind, Some(*step), Some(state.as_str()), None, *delay, false)
            }
            Transition::Retry { state, after, error, counted } => {
                ("r", None, state.as_deref(), error.as_deref(), *after, *counted)
            }
            Transition::Done { output } => ("d", None, Some(output.as_str()), None, Duration::ZERO, false),
            Transition::Stop { reason } => ("s", None, None, Some(reason.as_str()), Duration::ZERO, false),
        };
        self.kinds.push(kind);
        self.steps.push(step);
        self.payloads.push(payload);
        self.errors.push(error);
        self.delays.push(delay_micros(delay));
        self.counted.push(counted);
    }
}

/// What became of the rows that a flush wrote.
pub(super) fn written(rows: &[PgRow]) -> sqlx::Result<HashMap<Uuid, Flushed>> {
    rows.iter().map(|row| Ok((row.try_get(0)?, Flushed::Committed { watched: row.try_get(1)? }))).collect()
}

/// What became of rows that a flush missed. Those that are missing here, too, are stale.
pub(super) fn settled(rows: &[PgRow]) -> sqlx::Result<HashMap<Uuid, Flushed>> {
    let fate = |row: &PgRow| -> sqlx::Result<Flushed> {
        Ok(if row.try_get(1)? { Flushed::Locked } else { Flushed::Committed { watched: row.try_get(2)? } })
    };
    rows.iter().map(|row| Ok((row.try_get(0)?, fate(row)?))).collect()
}
