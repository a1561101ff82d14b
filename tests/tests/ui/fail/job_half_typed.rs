use gen_durable::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct SendMail {
    to: String,
}

#[durable_job]
async fn send_mail(mail: SendMail) -> JobResult<()> {
    mail.
}

fn insert() {
    let _ = SendMail::job();
    let _ = SendMail::NAME;
}

fn main() {}
