use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    CheckoutSteps,
}

fn main() {}
