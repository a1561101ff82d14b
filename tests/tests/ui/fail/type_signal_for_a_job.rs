use gen_durable::SignalFor;
use gen_durable::prelude::*;

#[derive(Signal, Serialize, Deserialize)]
struct Paid;

#[derive(Serialize, Deserialize)]
struct SendMail;

#[durable_job]
async fn send_mail(_: SendMail) -> JobResult<()> {
    Ok(())
}

fn takes<M: Machine, S: SignalFor<M>>() {}

fn uses() {
    takes::<SendMail, Paid>();
}

fn main() {}
