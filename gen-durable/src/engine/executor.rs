//! Runs one step: from the claimed row to the outcome that goes to the flusher.
//!
//! User code runs in here and nowhere else. Whatever it does (panics in the step, in serialisation, in a
//! `Drop`, in the text of an error) ends as a transition.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable};

use super::core::Core;
use super::flusher::{Handed, Settlement};
use super::lease::Lease;
use super::queue::Ticket;
use super::span::in_span;
use crate::context::Call;
use crate::error::StepError;
use crate::id::WorkerId;
use crate::machine::{Fault, MachineEntry, StateEntry};
use crate::outcome::storable_text;
use crate::store::Claimed;
use crate::telemetry::{Event, Outage};
use crate::transaction::Patience;
use crate::transition::{Committed, Transition};

/// How many steps an instance may run on one claim before others get their turn.
const MAX_RUN_AHEAD: u32 = 100;

/// Runs the step of a claimed row and hands its outcome to the flusher.
pub(super) async fn run(core: &Arc<Core>, ticket: &Ticket) {
    let row = &ticket.row;
    let (step, registration) = AbortHandle::new_pair();
    if !ticket.lease.start(row.held(), step) {
        return;
    }
    let Some(entry) = core.registry.get(row.machine) else {
        unreachable!("only rows of registered machines are claimed");
    };
    let started = Instant::now();
    let (state, transition) = match entry.find(&row.step) {
        Some((index, state)) => {
            let span = || {
                tracing::info_span!(
                    target: "gen_durable",
                    "step",
                    id = %row.id,
                    machine = entry.name,
                    version = entry.version,
                    state = state.step,
                    attempt = row.attempt,
                    trace_context = row.trace_context.as_deref(),
                )
            };
            let deciding = in_span(span, decide(core, entry, index, row, ticket.lease.id()));
            // The step is dropped inside of `guarded`, also when it is told to stop.
            match guarded(async { Abortable::new(deciding, registration).await }).await {
                Ok(Ok(transition)) => (state.step, transition),
                Ok(Err(_aborted)) if ticket.lease.is_cancelled(row.held()) => {
                    (state.step, Transition::Cancel)
                }
                Ok(Err(_aborted)) => return,
                Err(message) => {
                    let error = StepError::Panicked { message };
                    (state.step, by_policy(state, row, describe(&error), false))
                }
            }
        }
        None => {
            let steps: Vec<&str> = entry.states.iter().map(|state| state.step).collect();
            let problem = format!(
                "machine `{}` version {} has no step `{}`, only {}; give the state that took its place `#[state(alias = \"{}\")]`",
                entry.name,
                entry.version,
                row.step,
                steps.join(", "),
                row.step,
            );
            ("", undecodable(core, entry, row, problem))
        }
    };
    let Some((transition, committed)) = complete(core, &ticket.lease, transition).await else { return };
    let runs_ahead = ticket.ran_ahead < MAX_RUN_AHEAD
        && committed.is_none()
        && !core.is_stopping()
        && may_run_ahead(entry, &transition);
    core.flusher.hand_over(Handed {
        ran_ahead: ticket.ran_ahead,
        runs_ahead,
        lease: Arc::clone(&ticket.lease),
        row: Arc::clone(row),
        machine: entry.name,
        version: entry.version,
        state,
        transition,
        duration: started.elapsed(),
        rejected: false,
        faults: 0,
        committed,
    });
}

/// What goes to the flusher: says of the children that a transition inserts which machines they are of; `None` when the
/// lease is lost.
async fn complete(
    core: &Core,
    lease: &Lease,
    mut transition: Transition,
) -> Option<(Transition, Option<Settlement>)> {
    if let Transition::Committed(Committed { transition, status, watched, joined }) = transition {
        return Some((*transition, Some(Settlement { status, watched, joined })));
    }
    let Transition::FanOut { children, .. } = &mut transition else { return Some((transition, None)) };
    let mut outage = Outage::of("registering a machine", &core.events);
    for child in children {
        child.instance.machine = loop {
            match core.registry.id_of(&*core.store, child.machine, child.version).await {
                Ok(id) => break id,
                Err(_) if lease.is_lost() => return None,
                Err(error) => tokio::time::sleep(outage.failed(&error)).await,
            }
        };
    }
    Some((transition, None))
}

/// Whether the step that follows may run on the same claim.
fn may_run_ahead(entry: &MachineEntry, transition: &Transition) -> bool {
    match transition {
        Transition::Next { step, delay: Duration::ZERO, inline, .. } => {
            inline.unwrap_or_else(|| entry.find(step).is_some_and(|(_, state)| state.inline))
        }
        _ => false,
    }
}

/// Asks the state's error method what to do with an outcome that the database refused.
pub(super) async fn reject(
    core: &Arc<Core>,
    handed: &Handed,
    error: &str,
) -> Option<(Transition, Option<Settlement>)> {
    let transition = rejected(core, handed, error).await;
    complete(core, &handed.lease, transition).await
}

async fn rejected(core: &Arc<Core>, handed: &Handed, error: &str) -> Transition {
    let row = &handed.row;
    let problem = format!("the database refused the outcome `{}`: {error}", handed.transition.kind());
    let plain = || Transition::stop(problem.clone());
    let found = core.registry.get(row.machine).and_then(|entry| Some((entry, entry.find(&row.step)?)));
    // A second refusal gets the plain truth and no second chance.
    let (false, Some((entry, (index, _)))) = (handed.rejected, found) else { return plain() };
    let worker = handed.lease.id();
    let error = StepError::Unstorable { problem: problem.clone() };
    guarded(recover(core, entry, index, row, worker, error)).await.unwrap_or_else(|_| plain())
}

/// The transition that one start of a step leads to.
async fn decide(
    core: &Core,
    entry: &MachineEntry,
    index: usize,
    row: &Arc<Claimed>,
    worker: WorkerId,
) -> Transition {
    let state = &entry.states[index];
    let limit = state.retry.map_or(core.options.max_crashes, |policy| policy.max_attempts());
    if row.crashes > 0 && row.failures >= limit {
        let error = StepError::Crashed { crashes: row.crashes };
        // The error method itself ended the process before: it is not asked again.
        return if row.failures > limit {
            by_policy(state, row, describe(&error), true)
        } else {
            recover(core, entry, index, row, worker, error).await
        };
    }
    let call = call(core, row, worker);
    let patience = call.patience.clone();
    match bounded(state.timeout, patience, entry.steps.run(index, call)).await {
        Ok(transition) => transition,
        Err(Fault::Undecodable(problem)) => undecodable(core, entry, row, problem),
        Err(Fault::Error(error)) => recover(core, entry, index, row, worker, error).await,
    }
}

/// Runs the state's error method; if that fails, too, the retry policy decides what follows the first error.
async fn recover(
    core: &Core,
    entry: &MachineEntry,
    index: usize,
    row: &Arc<Claimed>,
    worker: WorkerId,
    error: StepError,
) -> Transition {
    let state = &entry.states[index];
    let cause = describe(&error);
    let fatal = error.is_fatal();
    let call = call(core, row, worker);
    let patience = call.patience.clone();
    match bounded(state.timeout, patience, entry.steps.recover(index, error, call)).await {
        Ok(Transition::Retry { state, after, error: None, counted }) => {
            Transition::Retry { state, after, error: Some(cause), counted }
        }
        Ok(transition) => transition,
        Err(Fault::Undecodable(problem)) => undecodable(core, entry, row, problem),
        Err(Fault::Error(error)) => {
            // By default the method returns the error that it was given.
            let own = describe(&error);
            let fatal = fatal || error.is_fatal();
            let cause = if own == cause {
                cause
            } else {
                storable_text(format!("{cause} (its error method failed: {own})"))
            };
            by_policy(state, row, cause, fatal)
        }
    }
}

/// What the retry policy of the state says to an error: again after a rest, or stop.
fn by_policy(state: &StateEntry, row: &Claimed, cause: String, fatal: bool) -> Transition {
    match state.retry {
        Some(policy) if !fatal && row.failures.saturating_add(1) < policy.max_attempts() => {
            // A backoff function is user code.
            match catch_unwind(|| policy.backoff(row.failures)) {
                Ok(after) => Transition::Retry { state: None, after, error: Some(cause), counted: true },
                Err(panic) => Transition::stop(format!(
                    "the backoff function panicked: {} (after: {cause})",
                    message(panic)
                )),
            }
        }
        _ => Transition::stop(cause),
    }
}

fn undecodable(core: &Core, entry: &MachineEntry, row: &Claimed, problem: String) -> Transition {
    core.events.emit(Event::StateUndecodable {
        id: row.id,
        machine: entry.name,
        state: row.step.clone(),
        problem: problem.clone(),
    });
    Transition::stop(problem)
}

fn call(core: &Core, row: &Arc<Claimed>, worker: WorkerId) -> Call {
    let patience = core.store.step_patience().map(Patience::new);
    Call { row: Arc::clone(row), scope: Arc::clone(&core.scope), worker, patience }
}

/// Runs user code for at most `timeout`, and no longer than `patience` in a transaction; a panic is an error like any
/// other.
async fn bounded(
    timeout: Option<Duration>,
    patience: Option<Arc<Patience>>,
    code: impl Future<Output = Result<Transition, Fault>>,
) -> Result<Transition, Fault> {
    let code = async {
        match patience {
            None => code.await,
            Some(patience) => tokio::select! {
                decided = code => decided,
                after = patience.is_lost() => Err(Fault::Error(StepError::TimedOut { after })),
            },
        }
    };
    let code = async {
        match timeout {
            None => code.await,
            Some(after) => tokio::time::timeout(after, code)
                .await
                .unwrap_or(Err(Fault::Error(StepError::TimedOut { after }))),
        }
    };
    guarded(code).await.unwrap_or_else(|message| Err(Fault::Error(StepError::Panicked { message })))
}

/// Runs user code; a panic yields its message.
async fn guarded<T>(code: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(code).catch_unwind().await.map_err(message)
}

/// The text of an error as it is stored; writing it is user code.
fn describe(error: &StepError) -> String {
    let text = catch_unwind(AssertUnwindSafe(|| error.to_string())).unwrap_or_else(|panic| {
        format!("an error whose text cannot be written: its Display panicked: {}", message(panic))
    });
    storable_text(text)
}

/// The message of a panic, whose payload is dropped.
pub(super) fn message(panic: Box<dyn Any + Send>) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    // A payload may panic once more when it is dropped.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text
}
