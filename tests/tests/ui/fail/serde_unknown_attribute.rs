use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    Start {
        #[serde(renam = "id")]
        order: i64,
    },
}

fn main() {}
