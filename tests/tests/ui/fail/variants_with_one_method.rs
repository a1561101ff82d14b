use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    #[state(next(Ship_Order))]
    ShipOrder,
    #[allow(non_camel_case_types)]
    Ship_Order,
}

fn main() {}
