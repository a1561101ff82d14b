use gen_durable::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct Payment {
    cents: i64,
}

#[durable_fsm]
enum Checkout {
    #[state(next(Refund))]
    Charge(Payment),
    Refund(Payment),
}

fn main() {}
