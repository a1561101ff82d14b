//! What steps return, as the engine hands it to a store.

use std::time::Duration;

use gen_durable::store::{Child, Claimed, KeyScope, NewInstance, NewKey, Parent, Transition};

use super::operations::{Delay, Outcome};
use super::play::{KEYS, MACHINES, NAMES, STEPS};

const HOUR: Duration = Duration::from_secs(3600);

/// A child to insert, whose parent is filled in with its fan-out.
pub(super) fn child(instance: NewInstance, machine: usize, key: Option<u8>) -> Child {
    let (machine, version) = MACHINES[machine];
    let key = key.map(|key| KEYS[usize::from(key) % KEYS.len()].to_owned());
    let key = key.map(|key| NewKey { family: machine, key, scope: KeyScope::Live });
    Child { machine, version, instance: NewInstance { key, ..instance } }
}

/// The outcome of a step, and its delay or timeout in words.
pub(super) fn transition(
    row: &Claimed,
    outcome: &Outcome,
    number: u32,
    children: Vec<Child>,
) -> (Transition, Delay) {
    let state = format!("{{\"n\":{number}}}");
    let step = |step: &u8| STEPS[usize::from(*step) % STEPS.len()];
    match outcome {
        Outcome::Next { step: to, delay, .. } => {
            (Transition::Next { step: step(to), state, delay: duration(*delay), inline: None }, *delay)
        }
        Outcome::Again { anew, delay, error, counted } => {
            let error = error.then(|| format!("error {number}"));
            let state = anew.then_some(state);
            (Transition::Retry { state, after: duration(*delay), error, counted: *counted }, *delay)
        }
        Outcome::Wait { step: to, names, timeout } => {
            let signals = names.iter().map(|name| NAMES[usize::from(*name) % NAMES.len()]).collect();
            let is_renewed = step(to) == row.step;
            let seen = row.mail.as_ref().filter(|_| is_renewed).map_or(0, |mail| mail.handed());
            let delay = timeout.unwrap_or(Delay::Now);
            (Transition::Wait { step: step(to), state, signals, timeout: timeout.map(duration), seen }, delay)
        }
        Outcome::FanOut { step: to, .. } => {
            let parent = Some(Parent { id: row.id, round: row.revision + 1 });
            let of_parent =
                |child: Child| Child { instance: NewInstance { parent, ..child.instance }, ..child };
            let children = children.into_iter().map(of_parent).collect();
            (Transition::FanOut { step: step(to), state, children }, Delay::Now)
        }
        Outcome::Done => (Transition::Done { output: number.to_string() }, Delay::Now),
        Outcome::Stop { cascade } => {
            (Transition::Stop { reason: format!("reason {number}"), cascade: *cascade }, Delay::Now)
        }
        Outcome::Cancelled => (Transition::Cancel, Delay::Now),
    }
}

fn duration(delay: Delay) -> Duration {
    match delay {
        Delay::Now => Duration::ZERO,
        Delay::Soon => Duration::from_micros(1),
        Delay::Later => HOUR,
    }
}

/// A row whose step ran ahead, under the same claim.
pub(super) fn ahead(row: &Claimed, transition: &Transition) -> Claimed {
    let Transition::Next { step, state, .. } = transition else { unreachable!("only a next runs ahead") };
    Claimed {
        step: (*step).to_owned(),
        state: state.clone(),
        revision: row.revision + 1,
        attempt: 0,
        failures: 0,
        crashes: 0,
        round: None,
        mail: None,
        ..row.clone()
    }
}
