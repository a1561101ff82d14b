//! The example `checkout`, driven over HTTP, killed and started again, on either database.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout};
use std::time::Duration;

use futures_util::future::join_all;
use gen_durable_tests::{until, until_within};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::example::{Place, built, kill, send, text};

#[path = "../../../examples/checkout/client.rs"]
mod client;

/// Status and body of an answer; a body that is not JSON is a text.
type Answer = (u16, Value);

/// Runs each test on either database.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod on_postgres {
            use crate::example::Place;
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test(Place::on_postgres().await).await;
                }
            )*
        }
        mod on_sqlite {
            use crate::example::Place;
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test(Place::on_sqlite().await).await;
                }
            )*
        }
    };
}

on_both! {
    an_order_is_paid_in_parts_shipped_and_ends_with_a_receipt,
    a_killed_shop_loses_nothing_and_does_nothing_twice,
    a_payment_that_is_told_many_times_at_once_counts_once,
    a_payment_that_comes_before_the_stock_is_taken_is_kept,
    an_order_that_is_not_paid_in_time_gives_its_stock_back,
    an_order_of_what_is_out_of_stock_stops_and_takes_nothing,
    what_the_shop_does_not_know_is_refused,
    a_shop_that_is_asked_to_end_ends_by_itself,
    the_demo_plays_its_session_again_and_again,
}

/// A process of the example that answers.
struct Shop {
    process: Option<Child>,
    address: SocketAddr,
    _output: BufReader<ChildStdout>,
}

impl Shop {
    async fn open(place: &Place, options: &[&str]) -> Self {
        let program = spawn_blocking(|| built("checkout")).await.expect("the build ends");
        let mut command = place.command(&program);
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let opened = spawn_blocking(move || {
            let mut process = command.args(["--listen", "127.0.0.1:0"]).args(options).spawn()?;
            let mut output = BufReader::new(process.stdout.take().expect("piped"));
            let mut line = String::new();
            output.read_line(&mut line)?;
            let Some(address) = line.trim().strip_prefix("listening on http://") else {
                panic!("it does not say where it listens: {line}{}", text(&process.wait_with_output()?));
            };
            let address = address.parse().expect("an address");
            std::io::Result::Ok(Self { process: Some(process), address, _output: output })
        });
        opened.await.expect("it says where it listens").expect("it starts")
    }

    fn kill(mut self) {
        kill(self.process.take().expect("it runs"));
    }

    /// Asks it to end, and waits until it has; returns whether it says that all was well.
    async fn end(mut self) -> bool {
        let mut process = self.process.take().expect("it runs");
        send("TERM", &process);
        spawn_blocking(move || process.wait()).await.expect("it ends").expect("it is ours").success()
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        parsed(client::post(self.address, path, body).await.expect("it answers"))
    }

    async fn get(&self, path: &str) -> Answer {
        parsed(client::get(self.address, path).await.expect("it answers"))
    }

    /// Places an order; returns its number.
    async fn order(&self, items: &[(&str, u32)]) -> i64 {
        let items: Vec<Value> =
            items.iter().map(|(sku, quantity)| json!({ "sku": sku, "quantity": quantity })).collect();
        let (status, body) = self.post("/orders", &json!({ "customer": "ada", "items": items })).await;
        assert_eq!(status, 201, "{body}");
        let order = body["order"].as_i64().expect("a number");
        assert_eq!(body["status"], format!("/orders/{order}"));
        order
    }

    async fn pay(&self, order: i64, payment: &str, cents: u32) -> Answer {
        let body = json!({ "payment": payment, "cents": cents });
        self.post(&format!("/payments/{order}"), &body).await
    }

    async fn standing(&self, order: i64) -> Value {
        let (status, body) = self.get(&format!("/orders/{order}")).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    /// Waits until an order is in a state; returns where it stands.
    async fn until(&self, order: i64, state: &str) -> Value {
        until(&format!("order {order} is {state}"), async || self.standing(order).await["state"] == state)
            .await;
        self.standing(order).await
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.process.take().into_iter().for_each(kill);
    }
}

fn parsed((status, body): client::Answer) -> Answer {
    (status, serde_json::from_str(&body).unwrap_or_else(|_| body.into()))
}

fn received() -> Answer {
    (200, json!({ "payment": "received" }))
}

fn already_received() -> Answer {
    (200, json!({ "payment": "already received" }))
}

impl Place {
    async fn pieces(&self, sku: &str) -> u64 {
        self.number(&format!("select pieces from checkout_stock where sku = '{sku}'")).await
    }

    async fn rows(&self, table: &str) -> u64 {
        self.number(&format!("select count(*) from checkout_{table}")).await
    }

    async fn until_rows(&self, table: &str, rows: u64) {
        until_within(Duration::from_secs(60), &format!("{rows} {table}"), async || {
            self.rows(table).await >= rows
        })
        .await;
    }
}

async fn an_order_is_paid_in_parts_shipped_and_ends_with_a_receipt(place: Place) {
    let shop = Shop::open(&place, &["--carrier-takes", "0.3"]).await;
    let before = [place.pieces("tea").await, place.pieces("cup").await, place.pieces("fireworks").await];
    let order = shop.order(&[("tea", 2), ("cup", 1), ("fireworks", 1), ("tea", 1)]).await;
    let placed = shop.until(order, "awaiting payment").await;
    assert_eq!(placed["cents"], 3 * 450 + 995 + 2_500);
    assert_eq!(place.pieces("tea").await, before[0] - 3);

    assert_eq!(shop.pay(order, "first", 2_000).await, received());
    assert_eq!(shop.pay(order, "first", 2_000).await, already_received());
    assert_eq!(shop.standing(order).await["state"], "awaiting payment");
    assert_eq!(shop.pay(order, "second", 3_000).await, received());
    shop.until(order, "shipping").await;
    assert_eq!(shop.pay(order, "too much", 100).await, received());
    let ended = shop.until(order, "finished").await;

    let receipt = json!({
        "order": order,
        "parcels": 3,
        "paid_cents": 5_100,
        "refund_cents": 5_100 - 3 * 450 - 995,
        "unshipped": "the carrier refuses fireworks",
    });
    assert_eq!(ended["receipt"], receipt);
    let lines: Vec<&Value> =
        ended["shipments"].as_array().expect("a list").iter().map(|s| &s["line"]).collect();
    assert_eq!(lines, [1, 2, 4]);
    let after = [place.pieces("tea").await, place.pieces("cup").await, place.pieces("fireworks").await];
    assert_eq!(after, [before[0] - 3, before[1] - 1, before[2]], "what was not shipped is back");

    assert_eq!(shop.pay(order, "first", 2_000).await, already_received(), "also after the end");
    let (status, body) = shop.pay(order, "too late", 1).await;
    assert_eq!(status, 409, "{body}");
    assert_eq!(place.rows("payments").await, 3);
    assert_eq!(shop.standing(order).await["paid_cents"], 5_100);
}

async fn a_killed_shop_loses_nothing_and_does_nothing_twice(place: Place) {
    const ORDERS: u64 = 4;
    const LINES: u64 = 12;
    let open = || Shop::open(&place, &["--carrier-takes", "0.05"]);

    let shop = open().await;
    let (tea, cups) = (place.pieces("tea").await, place.pieces("cup").await);
    let mut items = vec![("tea", 2); 6];
    items.extend([("cup", 1); 6]);
    let mut orders = Vec::new();
    for _ in 0..ORDERS {
        orders.push(shop.order(&items).await);
    }
    // Right after the last answer: some have taken their stock, some have not.
    shop.kill();

    let shop = open().await;
    for order in &orders {
        shop.until(*order, "awaiting payment").await;
    }
    for order in &orders {
        assert_eq!(shop.pay(*order, &format!("{order} in part"), 1_000).await, received());
    }
    shop.kill();

    let mut shop = open().await;
    for order in &orders {
        let (part, rest) = (format!("{order} in part"), format!("{order}, the rest"));
        assert_eq!(shop.pay(*order, &part, 1_000).await, already_received());
        let told = join_all((0..3).map(|_| shop.pay(*order, &rest, 6 * (900 + 995) - 1_000))).await;
        assert_eq!(told.iter().filter(|answer| **answer == received()).count(), 1, "{told:?}");
    }
    for part in 1..4 {
        place.until_rows("shipments", part * ORDERS * LINES / 4).await;
        shop.kill();
        shop = open().await;
    }
    for order in &orders {
        let ended = shop.until(*order, "finished").await;
        assert_eq!(ended["receipt"]["parcels"], LINES, "{ended}");
        assert_eq!(ended["receipt"]["refund_cents"], 0, "{ended}");
    }

    assert_eq!(place.pieces("tea").await, tea - ORDERS * 12, "stock is taken once");
    assert_eq!(place.pieces("cup").await, cups - ORDERS * 6, "stock is taken once");
    for (table, rows) in [("orders", 1), ("payments", 2), ("shipments", LINES), ("receipts", 1)] {
        assert_eq!(place.rows(table).await, ORDERS * rows, "{table}");
    }
    let done = "select count(*) from {overview} where status = 'done'";
    assert_eq!(place.number(done).await, ORDERS * (LINES + 1));
    assert_eq!(place.number("select count(*) from {overview}").await, ORDERS * (LINES + 1));
}

async fn a_payment_that_is_told_many_times_at_once_counts_once(place: Place) {
    let shop = Shop::open(&place, &[]).await;
    let order = shop.order(&[("cup", 2)]).await;
    let told = join_all((0..20).map(|_| shop.pay(order, "half", 995))).await;
    assert_eq!(told.iter().filter(|answer| **answer == received()).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|answer| **answer == already_received()).count(), 19, "{told:?}");
    let standing = shop.until(order, "awaiting payment").await;
    assert_eq!(standing["paid_cents"], 995);
    assert_eq!(standing["payments"], json!([{ "payment": "half", "cents": 995 }]));

    let other = shop.order(&[("cup", 1)]).await;
    let (status, body) = shop.pay(other, "half", 995).await;
    assert_eq!(status, 409, "a payment pays for one order: {body}");
    assert_eq!(shop.standing(other).await["paid_cents"], 0);
    assert_eq!(shop.pay(other, "another", 995).await, received());
    shop.until(other, "finished").await;
}

async fn a_payment_that_comes_before_the_stock_is_taken_is_kept(place: Place) {
    let front = Shop::open(&place, &["--front"]).await;
    let order = front.order(&[("cup", 1)]).await;
    assert_eq!(front.pay(order, "early", 995).await, received());
    assert_eq!(front.standing(order).await["state"], "reserving");

    let _back = Shop::open(&place, &[]).await;
    let ended = front.until(order, "finished").await;
    assert_eq!(ended["receipt"]["paid_cents"], 995);
}

#[tokio::test]
async fn a_payment_that_comes_while_the_stock_is_being_taken_is_kept() {
    let place = Place::on_postgres().await;
    let Place::Postgres(_, pool) = &place else { unreachable!("on PostgreSQL") };
    let shop = Shop::open(&place, &[]).await;
    let mut holder = pool.begin().await.expect("a transaction");
    let hold = "select pieces from checkout_stock where sku = 'cup' for update";
    sqlx::query(hold).execute(&mut *holder).await.expect("the shelf is held");
    let order = shop.order(&[("cup", 1)]).await;
    let executes = "select count(*) from {overview} where status = 'executing'";
    until("the step runs", async || place.number(executes).await == 1).await;

    assert_eq!(shop.pay(order, "early", 995).await, received());
    assert_eq!(shop.standing(order).await["state"], "reserving");
    holder.rollback().await.expect("the shelf is free");
    shop.until(order, "finished").await;
}

async fn an_order_that_is_not_paid_in_time_gives_its_stock_back(place: Place) {
    let shop = Shop::open(&place, &["--payment-timeout", "2"]).await;
    let pieces = place.pieces("tea").await;
    let order = shop.order(&[("tea", 5)]).await;
    assert_eq!(shop.pay(order, "a part", 100).await, received());
    shop.until(order, "awaiting payment").await;
    assert_eq!(place.pieces("tea").await, pieces - 5);

    let ended = shop.until(order, "stopped").await;
    assert_eq!(ended["reason"], "not paid in time: 100 of 2250 cents");
    assert_eq!(place.pieces("tea").await, pieces);
    let (status, body) = shop.pay(order, "too late", 2_150).await;
    assert_eq!(status, 409, "{body}");
    assert_eq!(shop.standing(order).await["paid_cents"], 100, "to be paid back");
}

async fn an_order_of_what_is_out_of_stock_stops_and_takes_nothing(place: Place) {
    let shop = Shop::open(&place, &[]).await;
    let pieces = place.pieces("tea").await;
    let order = shop.order(&[("tea", 5), ("unicorn", 1)]).await;
    let ended = shop.until(order, "stopped").await;
    assert_eq!(ended["reason"], "out of stock: unicorn");
    assert_eq!(place.pieces("tea").await, pieces);
}

async fn what_the_shop_does_not_know_is_refused(place: Place) {
    let shop = Shop::open(&place, &["--front"]).await;
    let items = [
        json!([]),
        json!([{ "sku": "dragon", "quantity": 1 }]),
        json!([{ "sku": "tea", "quantity": 0 }]),
        json!("tea"),
    ];
    for items in items {
        let (status, answer) = shop.post("/orders", &json!({ "customer": "ada", "items": items })).await;
        assert_eq!(status, 422, "{answer}");
        assert!(answer["error"].is_string(), "{answer}");
    }
    let (status, answer) = shop.pay(1, "p\0", 100).await;
    assert_eq!(status, 422, "{answer}");
    assert_eq!(place.rows("orders").await, 0);
    assert_eq!(place.number("select count(*) from {overview}").await, 0);

    assert_eq!(shop.pay(1, "for nobody", 100).await.0, 404);
    assert_eq!(shop.get("/orders/1").await.0, 404);
    assert_eq!(place.rows("payments").await, 0);
}

async fn a_shop_that_is_asked_to_end_ends_by_itself(place: Place) {
    let shop = Shop::open(&place, &[]).await;
    let order = shop.order(&[("cup", 1)]).await;
    assert!(shop.end().await, "without a problem");
    let shop = Shop::open(&place, &[]).await;
    assert_eq!(shop.pay(order, "all", 995).await, received());
    shop.until(order, "finished").await;
}

async fn the_demo_plays_its_session_again_and_again(place: Place) {
    let program = spawn_blocking(|| built("checkout")).await.expect("the build ends");
    for _ in 0..2 {
        let mut demo = place.command(&program);
        let output = spawn_blocking(move || demo.arg("--demo").output()).await.expect("it ends");
        let output = output.expect("it starts");
        let told = text(&output);
        assert!(output.status.success(), "{told}");
        for word in ["already received", "the carrier refuses fireworks", "out of stock: unicorn", "409 "] {
            assert!(told.contains(word), "{word}: {told}");
        }
    }
}
