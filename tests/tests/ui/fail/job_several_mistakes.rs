use gen_durable::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct SendMail {
    to: String,
}

#[durable_job(quue = "mail", timeout = "0s", max_attempts = -1)]
fn send_mail(_: SendMail, _cx: Context<SendMail>) {}

fn insert() {
    let _ = SendMail::job();
    let _ = SendMail::NAME;
}

fn main() {}
