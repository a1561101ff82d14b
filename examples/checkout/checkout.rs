//! What happens to one order: its stock is taken, it is paid for, each item is shipped, and there is a receipt.
//!
//! Everything that the steps write is in the engine's database, in a transaction that commits the step's outcome,
//! too. So each write happens exactly once, wherever the process dies.

use std::time::Duration;

use gen_durable::ChildEnd;
use gen_durable::prelude::*;
use sqlx::FromRow;

use crate::database::Database;
use crate::shipment::{HandOver, Shipment};
use crate::tables::total;

/// One order, from the cart to the receipt.
#[durable_fsm(output = Receipt, signals(PaymentReceived), retry(max_attempts = 10, backoff = "200ms"))]
#[derive(Debug)]
pub(crate) enum Checkout {
    /// Take the items out of stock, and wait for the money.
    #[state(initial, next(Collect))]
    Reserve { order: i64, items: Vec<Item> },
    /// See whether the payments suffice, and have every item shipped.
    #[state(next(Collect, Settle))]
    Collect { order: i64, items: Vec<Item> },
    /// See what was shipped, and write the receipt.
    #[state(finishes)]
    Settle { order: i64, items: Vec<Item> },
}

/// The customer's bank says that money has come.
#[derive(Debug, Signal, Serialize, Deserialize)]
pub(crate) struct PaymentReceived {
    pub(crate) cents: i64,
}

/// A line of an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow)]
pub(crate) struct Item {
    pub(crate) line: i64,
    pub(crate) sku: String,
    pub(crate) quantity: i64,
    /// The price of one piece when it was ordered.
    pub(crate) cents: i64,
}

/// What the customer gets in the end, besides the parcels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow)]
pub(crate) struct Receipt {
    #[sqlx(rename = "order_number")]
    pub(crate) order: i64,
    pub(crate) parcels: i64,
    pub(crate) paid_cents: i64,
    /// What was paid too much, and what was not shipped.
    pub(crate) refund_cents: i64,
    /// Why something was not shipped, if anything.
    pub(crate) unshipped: Option<String>,
}

/// What the steps need.
pub(crate) struct Steps {
    pub(crate) database: Database,
    /// How long to wait for each payment.
    pub(crate) patience: Duration,
}

/// The address of an order's instance.
pub(crate) fn key(order: i64) -> String {
    format!("order:{order}")
}

impl CheckoutSteps for Steps {
    async fn reserve(&self, s: Reserve, cx: &mut Context<Reserve>) -> StepResult<Reserve> {
        let mut tx = self.database.begin_step(cx).await?;
        if let Err(sku) = tx.connection().take(&s.items).await? {
            // The transaction is dropped with what it took already.
            return Ok(cx.stop(format!("out of stock: {sku}")));
        }
        let paid = Collect { order: s.order, items: s.items };
        tx.finish(cx.wait_for::<PaymentReceived>(paid).timeout(self.patience)).await
    }

    async fn collect(&self, s: Collect, cx: &mut Context<Collect>) -> StepResult<Collect> {
        let due = total(&s.items);
        // All that came so far: a wait that is renewed keeps what it has.
        let paid: i64 = cx.awaited::<PaymentReceived>()?.iter().map(|payment| payment.cents).sum();
        if paid >= due {
            let shipments = s.items.iter().map(|item| HandOver { order: s.order, item: item.clone() });
            let shipments: Vec<HandOver> = shipments.collect();
            return Ok(cx.fan_out(shipments, Settle { order: s.order, items: s.items }));
        }
        if cx.timed_out() {
            let mut tx = self.database.begin_step(cx).await?;
            tx.connection().give_back(&s.items).await?;
            return tx.finish(cx.stop(format!("not paid in time: {paid} of {due} cents"))).await;
        }
        Ok(cx.wait_for::<PaymentReceived>(s).timeout(self.patience).into())
    }

    async fn settle(&self, s: Settle, cx: &mut Context<Settle>) -> StepResult<Settle> {
        let (mut shipped, mut unshipped) = (Vec::new(), Vec::new());
        for shipment in cx.children::<Shipment>().all().await? {
            match shipment.end {
                ChildEnd::Done(line) => shipped.push(line),
                ChildEnd::Failed(reason) => unshipped.push(reason),
                _ => unshipped.push("a shipment was cancelled".into()),
            }
        }
        let (sent, kept): (Vec<Item>, Vec<Item>) =
            s.items.into_iter().partition(|item| shipped.contains(&item.line));

        let mut tx = self.database.begin_step(cx).await?;
        let mut tables = tx.connection();
        tables.give_back(&kept).await?;
        let paid_cents = tables.paid(s.order).await?;
        let receipt = Receipt {
            order: s.order,
            parcels: i64::try_from(sent.len())?,
            paid_cents,
            refund_cents: paid_cents - total(&sent),
            unshipped: (!unshipped.is_empty()).then(|| unshipped.join("; ")),
        };
        tables.add_receipt(&receipt).await?;
        tx.finish(cx.done(receipt)).await
    }
}
