use gen_durable::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct SendMail {
    to: String,
}

struct Mailer;

#[durable_job]
async fn send_mail(_: SendMail, cx: &mut Context<SendMail>) -> JobResult<()> {
    let Mailer = cx.resource::<Mailer>();
    Ok(())
}

fn insert() {
    let _ = SendMail::job();
    let _ = SendMail::NAME;
}

fn main() {}
