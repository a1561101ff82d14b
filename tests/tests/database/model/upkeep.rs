//! What engines do without being asked, and how a play ends.

use std::time::Duration;

use gen_durable::store::Held;

use super::operations::Operation;
use super::play::{ALL, ENOUGH, HOUR, Play, Verdict, asked, same};

impl Play {
    pub(super) async fn promote(&mut self) -> Verdict {
        let expected = self.model.promote();
        let later = self.model.is_anything_due_later();
        let (mut count, mut next_due) = (0, None);
        // Clocks may stand still or go back for a moment.
        for _ in 0..1_000 {
            let promoted = asked(self.store.promote(ALL).await)?;
            (count, next_due) = (count + promoted.count, promoted.next_due);
            if count >= expected {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        same!("promote", (count, next_due.is_some_and(|due| due > HOUR / 2)), (expected, later));
        Ok(())
    }

    pub(super) async fn crash(&mut self, at: usize) -> Verdict {
        let worker = self.workers[at];
        let beats = asked(self.store.workers().await)?;
        let Some(seen) = beats.iter().find(|beat| beat.id == worker) else {
            return Err(format!("{worker:?} is not among {beats:?}"));
        };
        same!("an old beat buries", asked(self.store.bury(worker, seen.beat - 1).await)?, false);
        same!("the last beat buries", asked(self.store.bury(worker, seen.beat).await)?, true);
        self.model.dead.insert(worker);
        self.workers[at] = self.hire().await?;
        let (lost, kept) = self.hands.drain(..).partition(|hand| hand.worker == worker);
        self.hands = kept;
        self.late.extend::<Vec<_>>(lost);
        Ok(())
    }

    pub(super) async fn cascade(&mut self, limit: u32) -> Verdict {
        for _ in 0..ENOUGH * 4 {
            let cascaded = asked(self.store.cascade(limit).await)?;
            self.model.cascade(&cascaded, limit as usize).map_err(|error| format!("cascade: {error}"))?;
            if !cascaded.left {
                return Ok(());
            }
        }
        Err("cascading does not end".into())
    }

    pub(super) async fn sweep(&mut self) -> Verdict {
        let expected = self.model.sweep();
        let mut count = 0;
        for _ in 0..1_000 {
            count += asked(self.store.sweep(Duration::ZERO, ALL).await)?.instances;
            if count >= expected {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        same!("sweep", count, expected);
        Ok(())
    }

    /// Ends everything and lets it be swept: nothing may be left.
    pub(crate) async fn end(&mut self) -> Verdict {
        for worker in self.workers.clone() {
            let held = self.model.held(worker);
            let mut held: Vec<Held> =
                held.iter().filter_map(|row| row.held()).map(|(_, held)| held).collect();
            held.sort_by_key(|held| held.id);
            if !held.is_empty() {
                same!(
                    "release at the end",
                    asked(self.store.release(worker, &held).await)?,
                    held.len() as u64
                );
                self.model.release(worker, &held);
            }
        }
        self.perform(&Operation::Reclaim).await?;
        for id in self.model.roots() {
            let (cancelling, joined) = asked(self.store.cancel(id, true).await)?;
            same!("cancel at the end", cancelling, self.model.cancel(id, true));
            self.told(&joined)?;
        }
        self.cascade(ALL).await?;
        self.sweep().await?;
        same!("rows are left", self.model.instances.iter().any(|row| !row.is_gone), false);
        Ok(())
    }
}
