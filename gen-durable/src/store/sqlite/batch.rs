//! Batches as JSON text, which one statement reads with `json_each`.

use serde::Serialize;

use crate::id::InstanceId;
use crate::outcome::Transition;
use crate::store::{Commit, Held, NewInstance, Start, delay_micros};

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
    let mut chunks = Vec::new();
    let mut rest = instances;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fitting = rest.iter().take(CHUNK_ROWS).take_while(|row| {
            bytes += row.state.len() + row.step.len() + row.queue.len() + 64;
            bytes <= CHUNK_BYTES
        });
        let (chunk, more) = rest.split_at(fitting.count().max(1));
        rest = more;
        let rows: Vec<_> = chunk.iter().map(|row| insert(row, now)).collect();
        chunks.push(text(&rows));
    }
    chunks
}

fn insert(row: &NewInstance, now: i64) -> impl Serialize + '_ {
    let eligible_at = match row.start {
        Start::After(delay) => now.saturating_add(delay_micros(delay)),
        Start::At(instant) => instant.timestamp_micros().clamp(EARLIEST, LATEST),
    };
    (
        hex(row.id),
        row.machine.0,
        row.step,
        &row.state,
        &*row.queue,
        row.priority,
        eligible_at,
        row.trace_context.as_deref(),
    )
}

/// Outcomes as `flush.sql` wants them.
pub(super) fn commits(commits: &[Commit]) -> String {
    text(&commits.iter().map(commit).collect::<Vec<_>>())
}

fn commit(commit: &Commit) -> impl Serialize + '_ {
    let (kind, step, payload, error, delay, counted) = match &commit.transition {
        Transition::Next { step, state, delay, .. } => {
            let kind = if commit.keeps_claim { "a" } else { "n" };
            (kind, Some(*step), Some(state.as_str()), None, delay_micros(*delay), 0)
        }
        Transition::Retry { state, after, error, counted } => {
            ("r", None, state.as_deref(), error.as_deref(), delay_micros(*after), u8::from(*counted))
        }
        Transition::Done { output } => ("d", None, Some(output.as_str()), None, 0, 0),
        Transition::Stop { reason } => ("s", None, None, Some(reason.as_str()), 0, 0),
    };
    let Held { id, claim, revision } = commit.held;
    (hex(id), claim, revision, kind, step, payload, error, delay, counted)
}

/// Machines as `machines.sql` wants them.
pub(super) fn machines(machines: &[(&str, u32)]) -> String {
    text(&machines)
}
