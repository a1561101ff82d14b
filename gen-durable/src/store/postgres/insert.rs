//! New instances as parallel arrays, by the megabyte.

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
pub(super) fn bind(chunk: &[NewInstance], query: Query) -> Query {
    let ids: Vec<Uuid> = chunk.iter().map(|row| row.id.into()).collect();
    let machines: Vec<i32> = chunk.iter().map(|row| row.machine.0).collect();
    let steps: Vec<&str> = chunk.iter().map(|row| row.step).collect();
    let states: Vec<&str> = chunk.iter().map(|row| row.state.as_str()).collect();
    let queues: Vec<&str> = chunk.iter().map(|row| &*row.queue).collect();
    let priorities: Vec<i16> = chunk.iter().map(|row| row.priority).collect();
    let (delays, instants): (Vec<_>, Vec<_>) = chunk.iter().map(|row| start(row.start)).unzip();
    let traces: Vec<Option<&str>> = chunk.iter().map(|row| row.trace_context.as_deref()).collect();
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

/// Cuts a batch into runs that each fit into a statement.
pub(super) fn chunks(instances: &[NewInstance]) -> Vec<&[NewInstance]> {
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

struct Chunks<'a>(&'a [NewInstance]);

impl<'a> Iterator for Chunks<'a> {
    type Item = &'a [NewInstance];

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = 0;
        let fitting = self
            .0
            .iter()
            .take(CHUNK_ROWS)
            .take_while(|row| {
                bytes += size(row);
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

fn size(row: &NewInstance) -> usize {
    /// Numbers and lengths.
    const FIXED: usize = 64;
    FIXED
        + row.step.len()
        + row.state.len()
        + row.queue.len()
        + row.trace_context.as_deref().map_or(0, str::len)
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
        }
    }

    #[test]
    fn chunks_hold_four_mebibytes_and_every_row_once() {
        let rows: Vec<_> = [3, 2, 1, 9, 1, 1].map(|mebibytes| of_size(mebibytes * 1024 * 1023)).into();
        let chunks: Vec<usize> = Chunks(&rows).map(<[NewInstance]>::len).collect();
        assert_eq!(chunks, [1, 2, 1, 2]);
    }

    #[test]
    fn nothing_is_no_chunk() {
        assert_eq!(Chunks(&[]).count(), 0);
    }

    #[test]
    fn extreme_instants_are_taken_as_years_that_the_database_knows() {
        let far = |instant| start(Start::At(instant)).1.expect("an instant").to_string();
        assert_eq!(far(DateTime::<Utc>::MIN_UTC), "0001-01-01 00:00:00 UTC");
        assert_eq!(far(DateTime::<Utc>::MAX_UTC), "9999-12-31 23:59:59 UTC");
    }
}
