//! What happens to one item of a paid order: a child of the [checkout](crate::checkout).

use std::time::Duration;

use gen_durable::prelude::*;

use crate::checkout::Item;
use crate::database::Database;

/// One parcel, from the shelf to the carrier. Its output is the line of the order that it carries.
#[durable_fsm(output = i64, retry(max_attempts = 10, backoff = "200ms"))]
#[derive(Debug)]
pub(crate) enum Shipment {
    /// Hand the parcel over and write its number down.
    #[state(initial, finishes)]
    HandOver { order: i64, item: Item },
}

/// What the steps need.
pub(crate) struct Steps {
    pub(crate) database: Database,
    pub(crate) carrier: Carrier,
}

impl ShipmentSteps for Steps {
    async fn hand_over(&self, s: HandOver, cx: &mut Context<HandOver>) -> StepResult<HandOver> {
        // Outside of the database a step may happen twice, so the carrier is given a key: the same parcel.
        let parcel = cx.id().to_string();
        if let Err(refused) = self.carrier.accept(&parcel, &s.item).await {
            // For good: the checkout finds out why among its children.
            return Ok(cx.stop(refused));
        }
        let mut tx = self.database.begin_step(cx).await?;
        tx.connection().add_shipment(s.order, s.item.line, &parcel).await?;
        tx.finish(cx.done(s.item.line)).await
    }
}

/// Stands for somebody else's service, which takes its time and is choosy.
pub(crate) struct Carrier {
    pub(crate) takes: Duration,
}

impl Carrier {
    async fn accept(&self, _parcel: &str, item: &Item) -> Result<(), String> {
        tokio::time::sleep(self.takes).await;
        if item.sku == "fireworks" {
            return Err(format!("the carrier refuses {}", item.sku));
        }
        Ok(())
    }
}
