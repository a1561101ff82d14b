//! Outcomes of steps, on their way into a store and into the model.

use gen_durable::store::{Claimed, Commit, DonePolicy, Flush, Flushed, Held, Transition};
use gen_durable::{Status, WorkerId};

use super::model::{Hand, Handed};
use super::operations::{Delay, Outcome};
use super::play::{ENOUGH, Play, Verdict, asked, same};
use super::steps;

/// Outcomes that are committed together.
#[derive(Clone)]
pub(super) struct Batch {
    worker: WorkerId,
    commits: Vec<(Hand, Commit, Delay)>,
    policy: DonePolicy,
    /// Whether in a transaction of the step's own.
    is_apart: bool,
}

impl Play {
    /// A worker with what it holds. One that holds nothing claims before.
    pub(super) async fn busy(&mut self, at: usize) -> Verdict<(WorkerId, Vec<Hand>)> {
        let worker = self.workers[at];
        if self.hands.iter().all(|hand| hand.worker != worker) {
            self.claim(at, 2, true).await?;
        }
        Ok((worker, self.hands.iter().filter(|hand| hand.worker == worker).cloned().collect()))
    }

    /// Commits outcomes of some of these rows.
    pub(super) async fn flush(
        &mut self,
        worker: WorkerId,
        hands: &[Hand],
        outcomes: &[(u8, Outcome)],
        delete: bool,
        is_apart: bool,
    ) -> Verdict {
        let mut commits: Vec<(Hand, Commit, Delay)> = Vec::new();
        for (number, outcome) in outcomes {
            let Some(hand) = hands.get(usize::from(*number) % hands.len().max(1)) else { break };
            // Whether a key that is freed in the same batch is free for a child is nobody's promise.
            let takes_key =
                matches!(outcome, Outcome::FanOut { children, .. } if children.iter().any(Option::is_some));
            if commits.iter().any(|(one, ..)| one.row.id == hand.row.id) || takes_key && !commits.is_empty() {
                continue;
            }
            let (transition, delay) = self.transition(&hand.row, outcome);
            let ahead = !is_apart && matches!(outcome, Outcome::Next { ahead: true, delay: Delay::Now, .. });
            commits.push((hand.clone(), Commit::of(&hand.row, transition, ahead), delay));
            if takes_key {
                break;
            }
        }
        commits.sort_by_key(|(hand, ..)| hand.row.id);
        if commits.is_empty() {
            return Ok(());
        }
        let policy = if delete { DonePolicy::Delete } else { DonePolicy::Keep };
        let batch = Batch { worker, commits, policy, is_apart };
        self.last_flush = Some(batch.clone());
        self.commit(batch).await
    }

    fn transition(&mut self, row: &Claimed, outcome: &Outcome) -> (Transition, Delay) {
        let number = self.next();
        let machine = self.machines.iter().position(|machine| *machine == row.machine).unwrap_or(0);
        let mut children = Vec::new();
        if let Outcome::FanOut { children: keys, .. } = outcome {
            for key in keys.iter().take(ENOUGH.saturating_sub(self.model.instances.len())) {
                children.push(steps::child(self.instance(machine, 2), machine, *key));
            }
        }
        steps::transition(row, outcome, number, children)
    }

    pub(super) async fn commit(&mut self, batch: Batch) -> Verdict {
        let Batch { worker, commits, policy, is_apart } = batch;
        let sent: Vec<Commit> = commits.iter().map(|(_, commit, _)| commit.clone()).collect();
        let answer = if is_apart {
            let connection = asked(self.store.begin_step().await)?.ok_or("it has no transactions")?;
            self.store.finish_step(connection, worker, &sent[0], policy).await
        } else {
            self.store.flush(worker, &sent, policy).await
        };
        if commits.iter().any(|(hand, commit, _)| self.model.refuses(hand, &commit.transition)) {
            self.wait_for_locks().await;
            return match answer {
                Err(error) if error.is_rejection() => Ok(()),
                other => Err(format!("a child's key is taken, and the flush says {other:?}")),
            };
        }
        let Flush { fates, joined } = asked(answer)?;
        let delete = policy == DonePolicy::Delete;
        let expected: Vec<Flushed> = commits
            .iter()
            .map(|(hand, commit, delay)| {
                // Writes that came too late are not there, even if an outcome of this step was committed before.
                let is_held = self.model.holds(hand);
                if is_apart && !is_held {
                    return Flushed::Stale;
                }
                self.model.commit(hand, &commit.transition, commit.keeps_claim, delete, *delay)
            })
            .collect();
        same!("flush", fates, expected);
        for ((hand, commit, _), fate) in commits.into_iter().zip(fates) {
            let known = self.hands.iter().position(|one| one.row.held() == hand.row.held());
            let Some(known) = known else { continue };
            let hand = self.hands.swap_remove(known);
            if commit.keeps_claim && matches!(fate, Flushed::Committed { status: Status::Executing, .. }) {
                let row = steps::ahead(&hand.row, &commit.transition);
                self.hands.push(Hand { row, handed: Handed::default(), ..hand.clone() });
            }
            self.late.push(hand);
        }
        self.told(&joined)
    }

    pub(super) async fn release(&mut self, worker: WorkerId, rows: &[u8]) -> Verdict {
        let mut held: Vec<Held> = Vec::new();
        for number in rows {
            let hands: Vec<usize> =
                (0..self.hands.len()).filter(|at| self.hands[*at].worker == worker).collect();
            let Some(at) = hands.get(usize::from(*number) % hands.len().max(1)) else { break };
            let hand = self.hands.swap_remove(*at);
            held.push(hand.row.held());
            self.late.push(hand);
        }
        // Those that are not held any more are left alone.
        held.extend(
            self.late.iter().filter(|hand| hand.worker == worker).map(|hand| hand.row.held()).take(1),
        );
        held.sort_by_key(|held| held.id);
        held.dedup_by_key(|held| held.id);
        let released = asked(self.store.release(worker, &held).await)?;
        same!("release", released, self.model.release(worker, &held));
        self.join_all().await
    }
}
