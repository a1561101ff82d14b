use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    #[serde(skip)]
    Start { order: i64 },
}

fn main() {}
