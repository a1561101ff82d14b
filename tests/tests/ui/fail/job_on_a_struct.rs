use gen_durable::prelude::*;

#[durable_job]
struct SendMail {
    to: String,
}

fn main() {}
