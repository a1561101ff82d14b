//! Batches as JSON text, which one statement reads with `json_each`.

use serde::Serialize;

use super::flush::Decided;
use crate::id::InstanceId;
use crate::store::{Commit, Held, NewInstance, NewSignal, Start, Target, delay_micros};
use crate::transition::{Child, Transition};

/// Most bytes of texts in one statement, unless a single row has more.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;
/// Most rows in one statement.
const CHUNK_ROWS: usize = 20_000;

/// Years 1 to 9999: instants beyond are taken as these, as in PostgreSQL.
const EARLIEST: i64 = -62_135_596_800_000_000;
const LATEST: i64 = 253_402_300_799_000_000;

/// The text of a batch.
pub(super) fn text(rows: &impl Serialize) -> String {
    // Numbers, texts and arrays of them always have a JSON text.
    serde_json::to_string(rows).unwrap_or_default()
}

/// An id as SQLite's `unhex` wants it.
fn hex(id: InstanceId) -> String {
    id.as_uuid().simple().to_string()
}

pub(super) fn ids(ids: &[InstanceId]) -> String {
    text(&ids.iter().map(|id| hex(*id)).collect::<Vec<_>>())
}

pub(super) fn held(rows: impl Iterator<Item = Held>) -> String {
    text(&rows.map(|held| (hex(held.id), held.claim, held.revision)).collect::<Vec<_>>())
}

/// New instances as `insert.sql` wants them, cut into runs that each fit into a statement.
pub(super) fn inserts(instances: &[NewInstance], now: i64) -> Vec<String> {
    cut(instances.iter(), |row| insert(row, now))
}

/// Instances with keys as `insert_related.sql` wants them, likewise.
pub(super) fn keyed_inserts(instances: &[NewInstance], now: i64) -> Vec<String> {
    cut(instances.iter(), |row| related_insert(row, now))
}

/// The children of a fan-out as `insert_related.sql` wants them, likewise.
pub(super) fn child_inserts(children: &[Child], now: i64) -> Vec<String> {
    cut(children.iter().map(|child| &child.instance), |row| related_insert(row, now))
}

fn cut<'a, T: Serialize>(
    rows: impl Iterator<Item = &'a NewInstance>,
    insert: impl Fn(&'a NewInstance) -> T,
) -> Vec<String> {
    let mut chunks = Vec::new();
    let mut chunk = Vec::new();
    let mut bytes = 0;
    for row in rows {
        if !chunk.is_empty() && (chunk.len() == CHUNK_ROWS || bytes + row.size() > CHUNK_BYTES) {
            chunks.push(text(&chunk));
            chunk.clear();
            bytes = 0;
        }
        bytes += row.size();
        chunk.push(insert(row));
    }
    if !chunk.is_empty() {
        chunks.push(text(&chunk));
    }
    chunks
}

fn insert(row: &NewInstance, now: i64) -> impl Serialize + '_ {
    (
        hex(row.id),
        row.machine.0,
        row.step,
        &row.state,
        &*row.queue,
        row.priority,
        eligible_at(row, now),
        row.trace_context.as_deref(),
    )
}

fn related_insert(row: &NewInstance, now: i64) -> impl Serialize + '_ {
    let key = row.key.as_ref();
    (
        hex(row.id),
        row.machine.0,
        row.step,
        &row.state,
        &*row.queue,
        row.priority,
        eligible_at(row, now),
        row.trace_context.as_deref(),
        key.map(|key| key.family),
        key.map(|key| key.key.as_str()),
        key.map(|key| key.scope.as_str()),
        row.parent.map(|parent| hex(parent.id)),
        row.parent.map(|parent| parent.round),
    )
}

fn eligible_at(row: &NewInstance, now: i64) -> i64 {
    match row.start {
        Start::After(delay) => now.saturating_add(delay_micros(delay)),
        Start::At(instant) => instant.timestamp_micros().clamp(EARLIEST, LATEST),
    }
}

/// Ids and keys of new instances as `holders.sql` wants them.
pub(super) fn keys(instances: &[NewInstance]) -> String {
    let key = |row: &NewInstance| {
        let key = row.key.as_ref();
        (hex(row.id), key.map(|key| key.family), key.map(|key| key.key.clone()))
    };
    text(&instances.iter().map(key).collect::<Vec<_>>())
}

/// Outcomes as `flush.sql` wants them.
pub(super) fn commits(commits: &[&Commit]) -> String {
    text(&commits.iter().map(|commit| near_commit(commit)).collect::<Vec<_>>())
}

fn near_commit(commit: &Commit) -> impl Serialize + '_ {
    let Held { id, claim, revision } = commit.held;
    let Parts { kind, step, payload, error, delay, counted, .. } =
        Parts::of(&commit.transition, commit.keeps_claim);
    (hex(id), claim, revision, kind, step, payload, error, delay, u8::from(counted))
}

/// Outcomes as `coordinate.sql` wants them.
pub(super) fn far_commits(decided: &[Decided<'_>]) -> String {
    text(&decided.iter().map(|(commit, transition)| far_commit(commit, transition)).collect::<Vec<_>>())
}

fn far_commit<'a>(commit: &'a Commit, transition: &'a Transition) -> impl Serialize + 'a {
    let Parts { kind, step, payload, delay, counted, .. } = Parts::of(transition, commit.keeps_claim);
    // That a start failed is noted also where its instance is cancelled.
    let error = Parts::of(&commit.transition, commit.keeps_claim).error;
    let (awaits, seen) = match transition {
        Transition::Wait { signals, seen, .. } => (Some(signals), Some(*seen)),
        _ => (None, None),
    };
    let children = match transition {
        Transition::FanOut { children, .. } => Some(children.len()),
        _ => None,
    };
    (
        hex(commit.held.id),
        kind,
        step,
        payload,
        error,
        delay,
        u8::from(counted),
        awaits,
        seen,
        u8::from(!commit.consumed.is_empty()),
        children,
        u8::from(matches!(transition, Transition::Stop { cascade: true, .. })),
    )
}

/// What the statements are told of an outcome.
struct Parts<'a> {
    kind: &'static str,
    step: Option<&'static str>,
    payload: Option<&'a str>,
    error: Option<&'a str>,
    delay: Option<i64>,
    counted: bool,
}

impl<'a> Parts<'a> {
    fn of(transition: &'a Transition, keeps_claim: bool) -> Self {
        let none = Self { kind: "", step: None, payload: None, error: None, delay: Some(0), counted: false };
        match transition {
            Transition::Next { step, state, delay, .. } => Self {
                kind: if keeps_claim { "a" } else { "n" },
                step: Some(*step),
                payload: Some(state.as_str()),
                delay: Some(delay_micros(*delay)),
                ..none
            },
            Transition::Wait { step, state, timeout, .. } => Self {
                kind: "w",
                step: Some(*step),
                payload: Some(state.as_str()),
                delay: timeout.map(delay_micros),
                ..none
            },
            Transition::FanOut { step, state, .. } => {
                Self { kind: "f", step: Some(*step), payload: Some(state.as_str()), ..none }
            }
            Transition::Retry { state, after, error, counted } => Self {
                kind: "r",
                payload: state.as_deref(),
                error: error.as_deref(),
                delay: Some(delay_micros(*after)),
                counted: *counted,
                ..none
            },
            Transition::Done { output } => Self { kind: "d", payload: Some(output.as_str()), ..none },
            Transition::Stop { reason, .. } => Self { kind: "s", error: Some(reason.as_str()), ..none },
            // One that is committed does not come here.
            Transition::Cancel | Transition::Committed(_) => Self { kind: "c", ..none },
        }
    }
}

/// Consumed signals as `consume.sql` and `spend.sql` want them.
pub(super) fn consumed(commits: &[&Commit]) -> String {
    let consumed = |commit: &&Commit| {
        let id = hex(commit.held.id);
        commit.consumed.iter().map(|seq| (id.clone(), *seq)).collect::<Vec<_>>()
    };
    text(&commits.iter().flat_map(consumed).collect::<Vec<_>>())
}

/// Signals as `targets.sql` wants them.
pub(super) fn targets(signals: &[NewSignal]) -> String {
    let target = |signal: &'_ NewSignal| {
        let (id, key) = match &signal.target {
            Target::Id(id) => (Some(hex(*id)), None),
            Target::Key(key) => (None, Some(key.clone())),
        };
        (signal.machine.clone(), id, key, signal.dedup_key.clone())
    };
    text(&signals.iter().map(target).collect::<Vec<_>>())
}

/// Signals with their targets as `deliver.sql` wants them.
pub(super) fn letters<'a>(signals: impl Iterator<Item = (InstanceId, &'a NewSignal)>) -> String {
    let letter = |(id, signal): (InstanceId, &'a NewSignal)| {
        (hex(id), signal.name.as_str(), signal.payload.as_str(), signal.dedup_key.as_deref())
    };
    text(&signals.map(letter).collect::<Vec<_>>())
}

/// How many signals instances were sent, and whether one ends their wait, as `wake.sql` wants it.
pub(super) fn received(received: impl Iterator<Item = (InstanceId, u32, bool)>) -> String {
    text(&received.map(|(id, count, wakes)| (hex(id), count, wakes)).collect::<Vec<_>>())
}

/// Machines as `machines.sql` wants them.
pub(super) fn machines(machines: &[(&str, u32)]) -> String {
    text(&machines)
}
