use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    #[serde(with = "module")]
    Start { order: i64 },
}

fn main() {}
