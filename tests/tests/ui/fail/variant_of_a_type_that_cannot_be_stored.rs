use gen_durable::prelude::*;

struct Payment;

#[durable_fsm]
enum Checkout {
    Charge(Payment),
}

fn main() {}
