use gen_durable::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct Payment {
    cents: i64,
}

#[durable_fsm]
enum Checkout {
    #[serde(rename_all = "camelCase")]
    Charge(Payment),
}

fn main() {}
