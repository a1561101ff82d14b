use gen_durable::prelude::*;

#[durable_fsm]
#[serde(untagged)]
enum Checkout {
    Start { order: i64 },
}

fn main() {}
