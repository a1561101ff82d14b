//! What customers and their banks may ask of the shop.

use std::num::{NonZeroU16, NonZeroU32};

use gen_durable::{BoxError, Delivery, Engine, Error, Status};
use serde::{Deserialize, Serialize};

use crate::checkout::{Checkout, Item, PaymentReceived, Receipt, Reserve, key};
use crate::database::{Database, on};
use crate::tables::{Payment, Shipped};

/// How many lines an order may have.
const MAX_LINES: usize = 500;
/// How long a name may be, in bytes.
const MAX_NAME: usize = 200;

#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) database: Database,
    pub(crate) engine: Engine,
}

/// An order, as it comes in.
#[derive(Deserialize)]
pub(crate) struct NewOrder {
    customer: String,
    items: Vec<NewItem>,
}

#[derive(Deserialize)]
struct NewItem {
    sku: String,
    quantity: NonZeroU16,
}

/// A payment, as the bank tells of it: at least once.
#[derive(Deserialize)]
pub(crate) struct NewPayment {
    payment: String,
    cents: NonZeroU32,
}

/// Where an order stands.
#[derive(Serialize)]
pub(crate) struct Standing {
    order: i64,
    customer: String,
    state: &'static str,
    cents: i64,
    paid_cents: i64,
    items: Vec<Item>,
    payments: Vec<Payment>,
    shipments: Vec<Shipped>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
    /// Why there is no receipt and never will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Why the shop does not do what it is asked.
pub(crate) enum Refusal {
    NoSuchOrder,
    Conflict(&'static str),
    Invalid(String),
    Failed(BoxError),
}

impl<E: Into<BoxError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A text that names something, if it can.
fn name(what: &str, text: String) -> Result<String, Refusal> {
    if text.is_empty() || text.len() > MAX_NAME || text.contains(char::is_control) {
        let problem = format!("{what} must be 1 to {MAX_NAME} bytes without control characters");
        return Err(Refusal::Invalid(problem));
    }
    Ok(text)
}

impl Shop {
    /// Takes an order: its rows and its instance are there together, or not at all.
    pub(crate) async fn order(&self, new: NewOrder) -> Result<i64, Refusal> {
        if new.items.is_empty() || new.items.len() > MAX_LINES {
            return Err(Refusal::Invalid(format!("an order has 1 to {MAX_LINES} items")));
        }
        let customer = name("the customer", new.customer)?;
        let mut tx = self.database.begin().await?;
        let mut items = Vec::with_capacity(new.items.len());
        for (line, NewItem { sku, quantity }) in (1..).zip(new.items) {
            let sku = name("an item's sku", sku)?;
            let Some(cents) = tx.connection().price(&sku).await? else {
                return Err(Refusal::Invalid(format!("the shop has no {sku}")));
            };
            items.push(Item { line, sku, quantity: quantity.get().into(), cents });
        }
        let order = tx.connection().add_order(&customer, &items).await?;
        let insert = self.engine.insert(Reserve { order, items }).correlation_key(key(order));
        on!(tx.connection(), connection => insert.in_tx(connection).await)?;
        tx.commit().await?;
        Ok(order)
    }

    /// Takes note of a payment, once: its row and its signal are there together, or not at all.
    pub(crate) async fn pay(&self, order: i64, new: NewPayment) -> Result<Delivery, Refusal> {
        let payment = Payment { payment: name("the payment", new.payment)?, cents: new.cents.get().into() };
        let mut tx = self.database.begin().await?;
        if !tx.connection().add_to_paid(order, payment.cents).await? {
            return Err(Refusal::NoSuchOrder);
        }
        if !tx.connection().add_payment(order, &payment).await? {
            return match tx.connection().order_of(&payment.payment).await? {
                Some(known) if known == order => Ok(Delivery::Repeated),
                _ => Err(Refusal::Conflict("this payment was made for another order")),
            };
        }
        // The signal last: from here to the commit it holds the order's instance, as a step does that commits its outcome
        // after its rows. If this waited for a row now, each could wait for the other.
        let signal = PaymentReceived { cents: payment.cents };
        let signal = self.engine.signal::<Checkout>(key(order), signal).dedup_key(&payment.payment);
        let delivery = match on!(tx.connection(), connection => signal.in_tx(connection).await) {
            Err(Error::NoTarget { .. }) => {
                return Err(Refusal::Conflict("the order has ended: pay the money back"));
            }
            delivery => delivery?,
        };
        tx.commit().await?;
        Ok(delivery)
    }

    /// Where an order stands.
    pub(crate) async fn standing(&self, number: i64) -> Result<Standing, Refusal> {
        // The instance first: what it has done is in the tables then.
        let (mut state, reason) = self.state(number).await?;
        let mut tx = self.database.begin_reading().await?;
        let mut tables = tx.connection();
        let order = tables.order(number).await?.ok_or(Refusal::NoSuchOrder)?;
        let receipt = tables.receipt(number).await?;
        if receipt.is_some() {
            state = "finished";
        }
        Ok(Standing {
            order: number,
            customer: order.customer,
            state,
            cents: order.cents,
            paid_cents: order.paid_cents,
            items: tables.items(number).await?,
            payments: tables.payments(number).await?,
            shipments: tables.shipments(number).await?,
            receipt,
            reason,
        })
    }

    /// What an order's instance does, and why it failed if it did.
    async fn state(&self, order: i64) -> Result<(&'static str, Option<String>), BoxError> {
        // Instances are deleted a day after their end, by default; the shop's tables stay.
        let gone = ("ended", None);
        let Some(handle) = self.engine.find::<Checkout>(&key(order)).await? else { return Ok(gone) };
        let Some(snapshot) = self.engine.get(handle.id()).await? else { return Ok(gone) };
        let state = match (snapshot.status, snapshot.decode::<Checkout>()?) {
            (Status::Done, _) => "finished",
            (Status::Failed, _) => return Ok(("stopped", snapshot.error)),
            (Status::Cancelled, _) => "cancelled",
            (_, Checkout::Reserve { .. }) => "reserving",
            (_, Checkout::Collect { .. }) => "awaiting payment",
            (_, Checkout::Settle { .. }) => "shipping",
        };
        Ok((state, None))
    }
}
