//! Outcomes on their way into the database.

use std::collections::HashMap;

use super::connection::{Connections, Durability, Query, Transaction};
use super::statements::Statement;
use super::{batch, decode, join, query, read, statements};
use crate::id::{InstanceId, WorkerId};
use crate::store::{Commit, DonePolicy, Flush, Flushed, Joined, StoreResult};
use crate::transition::Transition;

type Fates = HashMap<InstanceId, Flushed>;

/// Commits outcomes where the worker still owns the row; says of each, in order, what became of it.
///
/// Most touch nothing but their row and are one statement. The others, and those whose row turns out to have been sent
/// something meanwhile, take several.
pub(super) async fn commit(
    connections: &Connections,
    now: i64,
    worker: WorkerId,
    commits: &[Commit],
    policy: DonePolicy,
) -> StoreResult<Flush> {
    if commits.is_empty() {
        return Ok(Flush::default());
    }
    let flush = Flushing { now, worker, policy };
    let mut fates = Fates::with_capacity(commits.len());
    let mut joined = Joined::default();
    let commits: Vec<&Commit> = commits.iter().collect();
    let mut near: Vec<&Commit> = commits.iter().copied().filter(|commit| is_near(commit)).collect();
    if commits.iter().all(|commit| stays_home(commit)) {
        for answer in connections.write(Durability::Durable, flush.near(&near)).await? {
            fates.extend(read::committed(&answer.rows)?);
        }
        near.clear();
    }
    if fates.len() < commits.len() {
        let mut turn = connections.turn(Durability::Durable).await?;
        let mut transaction = turn.begin().await?;
        joined = flush.together(&mut transaction, &near, &commits, &mut fates).await?;
        transaction.commit().await?;
    }
    if fates.len() < commits.len() {
        let missed: Vec<&Commit> =
            commits.iter().copied().filter(|commit| !fates.contains_key(&commit.held.id)).collect();
        fates.extend(settle(connections, worker, &missed).await?);
    }
    let fate = |commit: &&Commit| fates.get(&commit.held.id).copied().unwrap_or(Flushed::Stale);
    Ok(Flush { fates: commits.iter().map(fate).collect(), joined })
}

/// Writes an outcome in a transaction where the worker still owns the row; says where it stands then.
pub(super) async fn commit_in(
    transaction: &mut Transaction<'_>,
    now: i64,
    worker: WorkerId,
    commit: &Commit,
    policy: DonePolicy,
) -> StoreResult<Option<(Flushed, Joined)>> {
    let flush = Flushing { now, worker, policy };
    let commits = [commit];
    let near = if is_near(commit) { &commits[..] } else { &[] };
    let mut fates = Fates::with_capacity(1);
    let joined = flush.together(transaction, near, &commits, &mut fates).await?;
    Ok(fates.into_values().next().map(|fate| (fate, joined)))
}

/// Where instances stand whose outcome was committed before.
pub(super) async fn settle(
    connections: &Connections,
    worker: WorkerId,
    missed: &[&Commit],
) -> StoreResult<Vec<(InstanceId, Flushed)>> {
    let missed = batch::held(missed.iter().map(|commit| commit.held));
    let query = query(statements::SETTLE).bind(worker.0).bind(missed);
    read::committed(&connections.read(statements::SETTLE, query).await?)
}

/// Whether it touches nothing but its row, unless this was sent something meanwhile.
fn is_near(commit: &Commit) -> bool {
    !commit.reaches_out() && !matches!(commit.transition, Transition::Stop { cascade: true, .. })
}

/// Whether no other row needs to know of it, either.
fn stays_home(commit: &Commit) -> bool {
    is_near(commit) && !(commit.is_child && commit.transition.is_terminal())
}

/// What all outcomes of a batch share.
struct Flushing {
    now: i64,
    worker: WorkerId,
    policy: DonePolicy,
}

impl Flushing {
    /// The statements for outcomes that touch nothing but their rows; each returns what it committed.
    fn near(&self, commits: &[&Commit]) -> Vec<(Statement, Query)> {
        let batch = batch::commits(commits);
        let mut statements = Vec::with_capacity(2);
        if self.policy == DonePolicy::Delete {
            let remove = query(statements::REMOVE).bind(self.worker.0).bind(batch.clone());
            statements.push((statements::REMOVE, remove));
        }
        let flush = query(statements::FLUSH).bind(self.worker.0).bind(self.now).bind(batch);
        statements.push((statements::FLUSH, flush));
        statements
    }

    /// Writes outcomes, first those of `near`, then all that have no fate yet.
    async fn together(
        &self,
        transaction: &mut Transaction<'_>,
        near: &[&Commit],
        commits: &[&Commit],
        fates: &mut Fates,
    ) -> StoreResult<Joined> {
        if !near.is_empty() {
            for (statement, query) in self.near(near) {
                fates.extend(read::committed(&transaction.run(statement, query).await?.rows)?);
            }
        }
        let far: Vec<&Commit> =
            commits.iter().copied().filter(|commit| !fates.contains_key(&commit.held.id)).collect();
        fates.extend(self.far(transaction, &far).await?);
        if commits.iter().any(|commit| commit.is_child) {
            return join::tell_all(transaction, self.now).await;
        }
        Ok(Joined::default())
    }

    /// Writes outcomes of any kind.
    async fn far(&self, transaction: &mut Transaction<'_>, commits: &[&Commit]) -> StoreResult<Fates> {
        let decided = self.decide(transaction, commits).await?;
        if decided.is_empty() {
            return Ok(Fates::new());
        }
        self.consume(transaction, &decided).await?;
        self.insert_children(transaction, &decided).await?;
        let coordinate = query(statements::COORDINATE).bind(self.now).bind(batch::far_commits(&decided));
        let rows = transaction.run(statements::COORDINATE, coordinate).await?.rows;
        self.clear(transaction, &decided).await?;
        Ok(read::committed(&rows)?.into_iter().collect())
    }

    /// Outcomes whose row the worker owns, and what becomes of it: it is cancelled if somebody asked for that and it would
    /// go on.
    async fn decide<'c>(
        &self,
        transaction: &mut Transaction<'_>,
        commits: &[&'c Commit],
    ) -> StoreResult<Vec<Decided<'c>>> {
        let rows = batch::held(commits.iter().map(|commit| commit.held));
        let asking = query(statements::OWNED).bind(self.worker.0).bind(rows);
        let rows = transaction.run(statements::OWNED, asking).await?.rows;
        let owned = decode(statements::OWNED, read::owned(&rows))?;
        let decide = |commit: &&'c Commit| {
            let commit: &'c Commit = commit;
            let cancel = *owned.get(&commit.held.id)? && !commit.transition.is_terminal();
            Some((commit, if cancel { &CANCEL } else { &commit.transition }))
        };
        Ok(commits.iter().filter_map(decide).collect())
    }

    /// Takes the signals that steps consumed out of the inboxes, where the instance goes on.
    async fn consume(&self, transaction: &mut Transaction<'_>, decided: &[Decided<'_>]) -> StoreResult<()> {
        let consuming: Vec<&Commit> = decided
            .iter()
            .filter(|(commit, transition)| progresses(transition) && !commit.consumed.is_empty())
            .map(|(commit, _)| *commit)
            .collect();
        if !consuming.is_empty() {
            let signals = batch::consumed(&consuming);
            for statement in [statements::CONSUME, statements::SPEND] {
                transaction.run(statement, query(statement).bind(signals.clone())).await?;
            }
        }
        Ok(())
    }

    async fn insert_children(
        &self,
        transaction: &mut Transaction<'_>,
        decided: &[Decided<'_>],
    ) -> StoreResult<()> {
        for (_, transition) in decided {
            let Transition::FanOut { children, .. } = transition else { continue };
            for chunk in batch::child_inserts(children, self.now) {
                let insert = query(statements::INSERT_CHILDREN).bind(self.now).bind(chunk);
                transaction.run(statements::INSERT_CHILDREN, insert).await?;
            }
        }
        Ok(())
    }

    /// What the end of instances brings with it, but for their parents.
    async fn clear(&self, transaction: &mut Transaction<'_>, decided: &[Decided<'_>]) -> StoreResult<()> {
        let ended: Vec<InstanceId> = ids(decided, Transition::is_terminal);
        if !ended.is_empty() {
            let clear = query(statements::CLEAR_INBOX).bind(batch::ids(&ended));
            transaction.run(statements::CLEAR_INBOX, clear).await?;
        }
        let done = ids(decided, |transition| matches!(transition, Transition::Done { .. }));
        if self.policy == DonePolicy::Delete && !done.is_empty() {
            let remove = query(statements::REMOVE_DONE).bind(batch::ids(&done));
            transaction.run(statements::REMOVE_DONE, remove).await?;
        }
        Ok(())
    }
}

/// An outcome, and what becomes of its row.
pub(super) type Decided<'c> = (&'c Commit, &'c Transition);

static CANCEL: Transition = Transition::Cancel;

fn progresses(transition: &Transition) -> bool {
    !transition.is_terminal() && !matches!(transition, Transition::Retry { .. })
}

fn ids(decided: &[Decided<'_>], picks: impl Fn(&Transition) -> bool) -> Vec<InstanceId> {
    decided.iter().filter(|(_, transition)| picks(transition)).map(|(commit, _)| commit.held.id).collect()
}
