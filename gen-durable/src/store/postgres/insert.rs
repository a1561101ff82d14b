//! New instances as parallel arrays, by the megabyte.

use std::borrow::Borrow;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::connection::Query;
use crate::store::{NewInstance, Start, delay_micros};

/// Most bytes of texts in one statement, unless a single row has more.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// Most rows in one statement.
const CHUNK_ROWS: usize = 20_000;

/// Year 1 and the end of year 9999: instants beyond are taken as these, far within what PostgreSQL keeps.
const EARLIEST: i64 = -62_135_596_800;
const LATEST: i64 = 253_402_300_799;

/// In the order of the parameters of `insert.sql`.
pub(super) fn bind<'a>(chunk: impl Iterator<Item = &'a NewInstance> + Clone, query: Query) -> Query {
    let ids: Vec<Uuid> = chunk.clone().map(|row| row.id.into()).collect();
    let machines: Vec<i32> = chunk.clone().map(|row| row.machine.0).collect();
    let steps: Vec<&str> = chunk.clone().map(|row| row.step).collect();
    let states: Vec<&str> = chunk.clone().map(|row| row.state.as_str()).collect();
    let queues: Vec<&str> = chunk.clone().map(|row| &*row.queue).collect();
    let priorities: Vec<i16> = chunk.clone().map(|row| row.priority).collect();
    let (delays, instants): (Vec<_>, Vec<_>) = chunk.clone().map(|row| start(row.start)).unzip();
    let traces: Vec<Option<&str>> = chunk.map(|row| row.trace_context.as_deref()).collect();
    query
        .bind(ids)
        .bind(machines)
        .bind(steps)
        .bind(states)
        .bind(queues)
        .bind(priorities)
        .bind(delays)
        .bind(instants)
        .bind(traces)
}

/// In the order of the parameters of `insert_related.sql`.
pub(super) fn bind_related(chunk: &[&NewInstance], query: Query) -> Query {
    let key = |row: &&NewInstance| row.key.clone();
    let families: Vec<Option<&str>> = chunk.iter().map(|row| key(row).map(|key| key.family)).collect();
    let keys: Vec<Option<String>> = chunk.iter().map(|row| key(row).map(|key| key.key)).collect();
    let scopes: Vec<Option<&str>> = chunk.iter().map(|row| key(row).map(|key| key.scope.as_str())).collect();
    let parents: Vec<Option<Uuid>> =
        chunk.iter().map(|row| row.parent.map(|parent| parent.id.as_uuid())).collect();
    let rounds: Vec<Option<i64>> = chunk.iter().map(|row| row.parent.map(|parent| parent.round)).collect();
    bind(chunk.iter().copied(), query).bind(families).bind(keys).bind(scopes).bind(parents).bind(rounds)
}

/// Cuts a batch into runs that each fit into a statement.
pub(super) fn chunks<T: Borrow<NewInstance>>(instances: &[T]) -> Vec<&[T]> {
    Chunks(instances).collect()
}

/// A delay by the database's clock, or an instant.
fn start(start: Start) -> (Option<i64>, Option<DateTime<Utc>>) {
    match start {
        Start::After(delay) => (Some(delay_micros(delay)), None),
        Start::At(instant) => {
            let bounds = DateTime::from_timestamp(EARLIEST, 0).zip(DateTime::from_timestamp(LATEST, 0));
            (None, Some(bounds.map_or(instant, |(earliest, latest)| instant.clamp(earliest, latest))))
        }
    }
}

struct Chunks<'a, T>(&'a [T]);

impl<'a, T: Borrow<NewInstance>> Iterator for Chunks<'a, T> {
    type Item = &'a [T];

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = 0;
        let fitting = self
            .0
            .iter()
            .take(CHUNK_ROWS)
            .take_while(|row| {
                bytes += (*row).borrow().size();
                bytes <= CHUNK_BYTES
            })
            .count()
            // A row that is too large for any statement still goes, alone.
            .max(usize::from(!self.0.is_empty()));
        let (chunk, rest) = self.0.split_at(fitting);
        self.0 = rest;
        (!chunk.is_empty()).then_some(chunk)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::{InstanceId, MachineId};

    fn of_size(bytes: usize) -> NewInstance {
        NewInstance {
            id: InstanceId::generate(),
            machine: MachineId(1),
            step: "step",
            state: "x".repeat(bytes),
            queue: "default".into(),
            priority: 0,
            start: Start::After(Duration::ZERO),
            trace_context: None,
            key: None,
            parent: None,
        }
    }

    #[test]
    fn chunks_hold_four_mebibytes_and_every_row_once() {
        let rows: Vec<_> = [3, 2, 1, 9, 1, 1].map(|mebibytes| of_size(mebibytes * 1024 * 1023)).into();
        let chunks: Vec<usize> = Chunks(&rows).map(<[_]>::len).collect();
        assert_eq!(chunks, [1, 2, 1, 2]);
    }

    #[test]
    fn nothing_is_no_chunk() {
        assert_eq!(Chunks::<NewInstance>(&[]).count(), 0);
    }

    #[test]
    fn extreme_instants_are_taken_as_years_that_the_database_knows() {
        let far = |instant| start(Start::At(instant)).1.expect("an instant").to_string();
        assert_eq!(far(DateTime::<Utc>::MIN_UTC), "0001-01-01 00:00:00 UTC");
        assert_eq!(far(DateTime::<Utc>::MAX_UTC), "9999-12-31 23:59:59 UTC");
    }
}
