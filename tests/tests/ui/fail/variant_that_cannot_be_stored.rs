use gen_durable::prelude::*;

struct Order;

#[durable_fsm]
enum Checkout {
    Start { order: Order },
}

fn main() {}
