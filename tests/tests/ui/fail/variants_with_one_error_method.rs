use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    #[state(next(OnShipError))]
    Ship,
    OnShipError,
}

fn main() {}
