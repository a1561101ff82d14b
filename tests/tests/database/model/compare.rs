//! Compares what is visible of a store with the model.

use std::collections::BTreeSet;

use gen_durable::store::{ClaimRequest, Delivered, Held, MachineId, NewSignal, Parent, Snapshot};
use gen_durable::{InstanceId, Status, WorkerId};

use super::model::{Hand, Instance, Model};
use super::play::{Play, QUEUE, Verdict, asked, mail, same};

/// Everything that a probe shows.
pub(super) async fn all(play: &Play) -> Verdict {
    let ids: Vec<InstanceId> = play.model.instances.iter().map(|row| row.new.id).collect();
    let seen = asked(play.store.probe(&ids, false).await)?;
    let there: BTreeSet<InstanceId> = seen.iter().map(|seen| seen.id).collect();
    let expected: BTreeSet<InstanceId> =
        play.model.instances.iter().filter(|row| !row.is_gone).map(|row| row.new.id).collect();
    same!("rows that are there", there, expected);
    for seen in &seen {
        let at = play.model.instances.iter().position(|row| row.new.id == seen.id);
        let row = at.map(|at| &play.model.instances[at]).filter(|row| !row.is_gone);
        let row = row.ok_or("it is not in the model")?;
        instance(seen, row).map_err(|error| format!("instance {at:?}: {error}"))?;
    }
    Ok(())
}

fn instance(seen: &Snapshot, row: &Instance) -> Verdict {
    same!("status", seen.status, row.status);
    same!("step and state", (seen.step.as_str(), &seen.state), (row.step, &row.state));
    same!("revision", seen.revision, row.revision);
    let counts = (row.attempt, row.failures, row.crashes);
    same!("attempt, failures, crashes", (seen.attempt, seen.failures, seen.crashes), counts);
    same!("inbox", seen.inbox as usize, row.inbox.len());
    same!("awaits", seen.awaits, row.awaits);
    same!("children pending", seen.children_pending, row.pending);
    same!("parent", seen.parent, row.new.parent.map(|parent| parent.id));
    same!("key", seen.correlation_key, row.new.key.as_ref().map(|key| key.key.clone()));
    same!("cancel requested", seen.cancel_requested, row.is_asked);
    same!("worker", seen.worker, row.holder.map(|(worker, _)| worker));
    same!("output and error", (&seen.output, &seen.error), (&row.output, &row.error));
    same!("machine and priority", (seen.machine.as_str(), seen.priority), (row.family, row.new.priority));
    same!("has ended", seen.finished_at.is_some(), row.status.is_terminal());
    if row.status == Status::Waiting {
        same!("times out", seen.eligible_at.is_some(), row.due.is_some());
    }
    Ok(())
}

/// Claims rows, and compares them and what their steps are handed.
pub(super) async fn claim(
    play: &mut Play,
    worker: WorkerId,
    claim: i64,
    limit: u32,
    alone: bool,
    machines: &[MachineId],
) -> Verdict<Vec<Hand>> {
    let request = ClaimRequest { worker, claim, queue: &QUEUE.into(), machines, limit, alone };
    let claims = asked(play.store.claim(&request).await)?;
    let (taken, there_are) = play.model.claim(worker, claim, limit as usize, alone);
    let ids = |taken: &[(InstanceId, _)]| taken.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    same!("claim", claims.rows.iter().map(|row| row.id).collect::<Vec<_>>(), ids(&taken));
    if claims.left_suspects && !there_are {
        return Err("claim: there are no suspects to be left".into());
    }
    let mut hands = Vec::new();
    for (row, (id, handed)) in claims.rows.into_iter().zip(taken) {
        let expected = play.model.get(id).ok_or("it is not in the model")?;
        same!("claimed step and state", (row.step.as_str(), &row.state), (expected.step, &expected.state));
        let counts = (expected.attempt, expected.failures, expected.crashes);
        same!("claimed attempts", (row.attempt, row.failures, row.crashes), counts);
        same!("claimed machine", row.machine, expected.new.machine);
        same!("proof", Some((worker, row.held())), expected.held());
        same!("is child", row.is_child, expected.new.parent.is_some());
        same!("round", row.round, expected.round);
        let mail = mail(&row);
        same!("awaits", mail.awaits, expected.awaits);
        same!("timed out", mail.timed_out, expected.timed_out);
        let letters: Vec<_> = mail.inbox.iter().map(|letter| (&letter.name, &letter.payload)).collect();
        let inbox: Vec<_> = expected.inbox.iter().map(|letter| (&letter.name, &letter.payload)).collect();
        same!("letters", letters, inbox);
        play.numbers
            .extend(mail.inbox.iter().zip(&expected.inbox).map(|(one, other)| (one.seq, other.number)));
        let latest = expected.inbox.last().map_or(0, |letter| letter.number);
        same!("the last letter", play.numbers.get(&mail.latest), Some(&latest));
        same!("the last letter seen", play.numbers.get(&mail.seen), Some(&expected.seen));
        hands.push(Hand { worker, row, handed });
    }
    Ok(hands)
}

/// What became of signals. Of several that end a wait together, the first says so; others may.
pub(super) fn delivered(model: &mut Model, signals: &[NewSignal], answers: &[Delivered]) -> Verdict {
    let waits: BTreeSet<InstanceId> = model
        .instances
        .iter()
        .filter(|row| row.is_live() && row.status == Status::Waiting)
        .map(|row| row.new.id)
        .collect();
    same!("answers", answers.len(), signals.len());
    for (signal, answer) in signals.iter().zip(answers) {
        let before: Vec<usize> = model.instances.iter().map(|row| row.inbox.len()).collect();
        let (expected, _) = model.signal(signal);
        let receiver = model.instances.iter().zip(before).find(|(row, before)| row.inbox.len() > *before);
        let waited = receiver
            .is_some_and(|(row, _)| waits.contains(&row.new.id) && row.awaits.contains(&&*signal.name));
        let woke = Delivered::Stored { woke: Some(QUEUE.to_owned()) };
        if *answer != expected && !(waited && *answer == woke) {
            return Err(format!("signal {signal:?}: the store says {answer:?}, the model {expected:?}"));
        }
    }
    Ok(())
}

/// The children of an instance's latest fan-out.
pub(super) async fn children(play: &Play, id: InstanceId) -> Verdict {
    let Some(row) = play.model.get(id) else { return Ok(()) };
    let parent = Parent { id, round: row.round.unwrap_or(row.revision) };
    let seen = asked(play.store.children(parent, row.family, None, 100).await)?;
    let seen: Vec<_> =
        seen.iter().map(|seen| (seen.id, seen.status, seen.version, &seen.output, &seen.error)).collect();
    let mut expected: Vec<_> = play
        .model
        .instances
        .iter()
        .filter(|row| !row.is_gone && row.new.parent == Some(parent))
        .map(|row| (row.new.id, row.status, play.version(row), &row.output, &row.error))
        .collect();
    expected.sort_by_key(|(id, ..)| *id);
    same!("children", seen, expected);
    Ok(())
}

/// What a worker holds, and what it is asked to cancel.
pub(super) async fn pulse(play: &Play, worker: WorkerId) -> Verdict {
    let held = |row: &Instance| row.held().map(|(_, held)| held);
    let sorted = |mut held: Vec<Held>| {
        held.sort_by_key(|held| held.id);
        held
    };
    let rows = play.model.held(worker);
    let expected = sorted(rows.iter().filter_map(|row| held(row)).collect());
    same!("held", sorted(asked(play.store.held(worker).await)?), expected);
    let mut beaten = asked(play.store.beat(worker).await)?;
    beaten.cancel.sort_unstable();
    let mut asked: Vec<InstanceId> = rows.iter().filter(|row| row.is_asked).map(|row| row.new.id).collect();
    asked.sort_unstable();
    same!("alive, to cancel", (beaten.alive, beaten.cancel), (true, asked));
    Ok(())
}
