//! Histories that failed once, or that chance does not find often. What a failure prints can be put here as it is.

use gen_durable::store::KeyScope::*;

use super::operations::Delay::*;
use super::operations::Operation::{self, *};
use super::operations::Outcome::{self, *};

const NEXT: Outcome = Next { step: 1, delay: Now, ahead: false };

fn flush(worker: u8, hand: u8, outcome: Outcome) -> Operation {
    Flush { worker, outcomes: vec![(hand, outcome)], delete: false }
}

fn fan_out() -> Outcome {
    FanOut { step: 1, children: vec![None] }
}

pub(crate) fn all() -> Vec<Vec<Operation>> {
    vec![
        // An insert whose answer was lost is sent again: there is an instance with this id, and nobody has the key.
        vec![InsertKeyed { keys: vec![(0, Address)], machine: 0 }, InsertAgain],
        vec![
            InsertKeyed { keys: vec![(0, Live)], machine: 0 },
            Claim { worker: 0, limit: 3, alone: true },
            flush(0, 2, Done),
            InsertAgain,
        ],
        // Somebody has the key of a failed instance; somebody else has it as an address only.
        vec![
            InsertKeyed { keys: vec![(0, Live)], machine: 0 },
            Claim { worker: 0, limit: 3, alone: true },
            flush(0, 2, Stop { cascade: false }),
            InsertKeyed { keys: vec![(0, Live)], machine: 0 },
            InsertKeyed { keys: vec![(0, Address)], machine: 0 },
            Retry { instance: 0 },
        ],
        // Ended instances are not asked to end any more.
        vec![
            Claim { worker: 0, limit: 2, alone: true },
            Cancel { instance: 0, cascade: false },
            flush(0, 0, NEXT),
        ],
        // The start failed, and its instance is cancelled.
        vec![
            Claim { worker: 0, limit: 2, alone: true },
            Cancel { instance: 0, cascade: false },
            flush(0, 0, Again { anew: false, delay: Now, error: true, counted: true }),
        ],
        // A child without a fan-out has a live child of an earlier one, which failed and runs again.
        vec![
            flush(0, 0, fan_out()),
            flush(1, 0, fan_out()),
            flush(1, 0, Stop { cascade: false }),
            flush(1, 0, NEXT),
            Retry { instance: 0 },
            Cancel { instance: 0, cascade: true },
            Cascade { limit: 1 },
        ],
        // One without children hides behind the limit one that has some.
        vec![
            flush(0, 1, fan_out()),
            flush(0, 0, Stop { cascade: true }),
            Cancel { instance: 1, cascade: true },
            Cascade { limit: 1 },
        ],
        // A step's own transaction comes after an outcome of it, and holds nothing any more when it says so.
        vec![
            Finish { worker: 0, outcome: (0, NEXT), delete: false },
            FlushAgain,
            Claim { worker: 1, limit: 2, alone: true },
        ],
    ]
}
