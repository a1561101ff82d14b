use gen_durable::prelude::*;

#[durable_fsm]
#[serde(rename_all = "camelCase")]
enum Checkout {
    Start { order: i64 },
}

fn main() {}
