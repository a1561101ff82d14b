use gen_durable::prelude::*;

#[derive(Signal, Serialize, Deserialize)]
struct Paid {
    cents: i64,
}

#[durable_fsm(signals(Paid))]
enum Checkout {
    #[state(next(Paid))]
    Start { order: i64 },
    #[state(finishes)]
    Paid { order: i64 },
}

fn main() {}
