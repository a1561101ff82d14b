//! What instances are sent.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::connection::{Connections, Durability, Transaction};
use super::{batch, decode, query, read, statements};
use crate::id::InstanceId;
use crate::store::{Claimed, Delivered, INBOX_LIMIT, Mail, NewSignal, StoreResult};

/// Puts signals into the inboxes of their targets.
pub(super) async fn send(
    connections: &Connections,
    now: i64,
    signals: &[NewSignal],
) -> StoreResult<Vec<Delivered>> {
    if signals.is_empty() {
        return Ok(Vec::new());
    }
    let mut turn = connections.turn(Durability::Durable).await?;
    let mut transaction = turn.begin().await?;
    let answers = send_in(&mut transaction, now, signals).await?;
    if answers.iter().any(|answer| matches!(answer, Delivered::Stored { .. })) {
        transaction.commit().await?;
    }
    Ok(answers)
}

/// Likewise, in a transaction that holds the write lock.
pub(super) async fn send_in(
    transaction: &mut Transaction<'_>,
    now: i64,
    signals: &[NewSignal],
) -> StoreResult<Vec<Delivered>> {
    let finding = query(statements::TARGETS).bind(batch::targets(signals));
    let rows = transaction.run(statements::TARGETS, finding).await?.rows;
    let found = decode(statements::TARGETS, rows.iter().map(read::found).collect::<sqlx::Result<Vec<_>>>())?;
    let mut mailbag = Mailbag::default();
    let answers = signals.iter().zip(found).map(|(signal, found)| mailbag.put(signal, found)).collect();
    if !mailbag.letters.is_empty() {
        let letters = batch::letters(mailbag.letters.into_iter());
        let delivering = query(statements::DELIVER).bind(now).bind(letters);
        transaction.run(statements::DELIVER, delivering).await?;
        let received =
            mailbag.received.into_iter().map(|(id, received)| (id, received.count, received.wakes));
        let waking = query(statements::WAKE).bind(now).bind(batch::received(received));
        transaction.run(statements::WAKE, waking).await?;
    }
    Ok(answers)
}

/// What is delivered together, and in this order.
#[derive(Default)]
struct Mailbag<'s> {
    letters: Vec<(InstanceId, &'s NewSignal)>,
    received: HashMap<InstanceId, Received>,
    keys: HashSet<(InstanceId, &'s str)>,
}

/// What an instance receives.
#[derive(Default)]
struct Received {
    count: u32,
    /// Whether that ends its wait.
    wakes: bool,
}

impl<'s> Mailbag<'s> {
    /// Adds a signal, unless it cannot be delivered; says what becomes of it.
    fn put(&mut self, signal: &'s NewSignal, found: read::Found) -> Delivered {
        let Some(id) = found.id else { return Delivered::NoTarget };
        if found.is_ambiguous {
            return Delivered::Ambiguous;
        }
        let is_new = signal.dedup_key.as_deref().is_none_or(|key| self.keys.insert((id, key)));
        if found.is_repeated || !is_new {
            return Delivered::Repeated;
        }
        self.letters.push((id, signal));
        let received = self.received.entry(id).or_default();
        received.count += 1;
        let wakes = !received.wakes && found.awaits.contains(&signal.name);
        received.wakes |= wakes;
        Delivered::Stored { woke: (wakes && !found.set_aside).then_some(found.queue) }
    }
}

/// Fills the inboxes of rows that were just claimed.
///
/// The claim is committed before this looks, so that a claim without signals stays one statement: signals may come in
/// between, but nobody else takes any away.
pub(super) async fn collect(connections: &Connections, rows: &mut [Claimed]) -> StoreResult<()> {
    let mut ids = Vec::new();
    let mut mails: Vec<&mut Mail> = Vec::new();
    for row in rows {
        if let Some(mail) = row.mail.as_mut().and_then(Arc::get_mut) {
            ids.push(row.id);
            mails.push(mail);
        }
    }
    if ids.is_empty() {
        return Ok(());
    }
    let asking = query(statements::INBOX).bind(batch::ids(&ids)).bind(i64::from(INBOX_LIMIT));
    let rows = connections.read(statements::INBOX, asking).await?;
    decode(statements::INBOX, read::inboxes(&rows, &mut mails))
}
