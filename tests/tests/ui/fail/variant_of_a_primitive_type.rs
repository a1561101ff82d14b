use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    Start(u64),
}

fn main() {}
