//! A session with the shop, over HTTP: what the customer and the bank send, and what they are told.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gen_durable::BoxError;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::client::{self, Answer};

/// How long an order may take to get anywhere.
const LIMIT: Duration = Duration::from_secs(30);
/// How long to rest between two looks.
const REST: Duration = Duration::from_millis(20);

pub(crate) async fn play(server: SocketAddr) -> Result<(), BoxError> {
    say("\n# An order of which the carrier refuses a part.")?;
    let items = [("tea", 2), ("cup", 1), ("fireworks", 1)];
    let items = items.map(|(sku, quantity)| json!({ "sku": sku, "quantity": quantity }));
    let placed = post(server, "/orders", &json!({ "customer": "ada", "items": items })).await?;
    let status = text(&placed, "status")?;
    let payments = status.replace("orders", "payments");
    until(server, &status, "awaiting payment").await?;

    say("\n# The bank tells of a payment twice, which is too little, and then of the rest.")?;
    let [first, second] = [2_000, 2_395].map(|cents| json!({ "payment": Uuid::now_v7(), "cents": cents }));
    for payment in [&first, &first, &second] {
        post(server, &payments, payment).await?;
    }
    until(server, &status, "finished").await?;
    get(server, &status).await?;

    say("\n# After the end, the same payment once more, and another one.")?;
    post(server, &payments, &first).await?;
    post(server, &payments, &json!({ "payment": Uuid::now_v7(), "cents": 1 })).await?;

    say("\n# An order of what is not there.")?;
    let items = json!([{ "sku": "unicorn", "quantity": 1 }]);
    let placed = post(server, "/orders", &json!({ "customer": "bob", "items": items })).await?;
    let status = text(&placed, "status")?;
    until(server, &status, "stopped").await?;
    get(server, &status).await?;
    Ok(())
}

async fn post(server: SocketAddr, path: &str, body: &Value) -> Result<Answer, BoxError> {
    say(&format!("\n$ curl --json '{body}' http://{server}{path}"))?;
    shown(client::post(server, path, body).await?)
}

async fn get(server: SocketAddr, path: &str) -> Result<Answer, BoxError> {
    say(&format!("\n$ curl http://{server}{path}"))?;
    shown(client::get(server, path).await?)
}

fn shown(answer: Answer) -> Result<Answer, BoxError> {
    say(&format!("{} {}", answer.0, answer.1))?;
    Ok(answer)
}

/// Looks at the order until it is in a state.
async fn until(server: SocketAddr, path: &str, state: &str) -> Result<(), BoxError> {
    let begun = Instant::now();
    loop {
        let answer = client::get(server, path).await?;
        if text(&answer, "state")? == state {
            return Ok(());
        }
        if begun.elapsed() > LIMIT {
            return Err(format!("{path} is not {state} after {LIMIT:?}: {}", answer.1).into());
        }
        tokio::time::sleep(REST).await;
    }
}

fn text((status, body): &Answer, field: &str) -> Result<String, BoxError> {
    let parsed: Value = serde_json::from_str(body)?;
    let text =
        parsed[field].as_str().ok_or_else(|| format!("an answer without `{field}`: {status} {body}"))?;
    Ok(text.to_owned())
}

fn say(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}
