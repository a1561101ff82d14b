use gen_durable::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct SendMail {
    to: String,
}

struct Mailer;

impl Mailer {
    #[durable_job]
    async fn send_mail(&self, _: SendMail) -> JobResult<()> {
        Ok(())
    }
}

fn main() {}
