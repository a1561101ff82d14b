use gen_durable::prelude::*;

#[derive(Signal, Serialize, Deserialize)]
struct Paid {
    cents: Cents,
}

#[derive(Serialize, Deserialize)]
struct Cents(std::marker::PhantomData<*const i64>);

fn main() {}
