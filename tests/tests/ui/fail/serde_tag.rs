use gen_durable::prelude::*;

#[durable_fsm]
#[serde(tag = "type", content = "data")]
enum Checkout {
    Start { order: i64 },
}

fn main() {}
