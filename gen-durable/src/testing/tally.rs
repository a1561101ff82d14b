//! What a test engine ran.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::telemetry::Event;

/// What a test engine ran in one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Steps that ran and whose outcome is committed.
    pub steps: u64,
    /// How many of them went on to another state.
    pub nexts: u64,
    /// How many of them are to run again.
    pub retries: u64,
    /// How many of them finished their instance.
    pub done: u64,
    /// How many of them failed their instance.
    pub failed: u64,
    /// How much time was passed over.
    pub passed: Duration,
    by_step: BTreeMap<(&'static str, &'static str), u64>,
}

impl Tally {
    /// How often the step of this name ran, of whatever machine.
    #[must_use]
    pub fn of(&self, step: &str) -> u64 {
        self.by_step.iter().filter(|((_, name), _)| *name == step).map(|(_, count)| count).sum()
    }

    pub(super) fn note(&mut self, event: &Event) {
        let Event::StepFinished { machine, state, outcome, .. } = event else { return };
        self.steps += 1;
        *self.by_step.entry((*machine, *state)).or_default() += 1;
        match *outcome {
            "next" => self.nexts += 1,
            "retry" => self.retries += 1,
            "done" => self.done += 1,
            _ => self.failed += 1,
        }
    }

    /// The steps that ran most, for the message about a runaway.
    pub(super) fn most(&self) -> String {
        let mut steps: Vec<_> = self.by_step.iter().collect();
        steps.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let text =
            |((machine, step), count): &(&(&str, &str), &u64)| format!("{count} of `{step}` of `{machine}`");
        steps.iter().take(3).map(text).collect::<Vec<_>>().join(", ")
    }
}
