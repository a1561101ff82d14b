//! The shop's own tables.

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::{AssertSqlSafe, FromRow};

use crate::checkout::{Item, Receipt};
use crate::database::{Connection, Database, on};

/// `{number}` is the one type that differs: a number that the database counts.
const TABLES: &str = "
    create table if not exists checkout_stock (
        sku text not null primary key,
        cents bigint not null,
        pieces bigint not null check (pieces >= 0)
    );
    create table if not exists checkout_orders (
        number {number},
        customer text not null,
        cents bigint not null,
        paid_cents bigint not null default 0
    );
    create table if not exists checkout_items (
        order_number bigint not null references checkout_orders,
        line bigint not null,
        sku text not null,
        quantity bigint not null,
        cents bigint not null,
        primary key (order_number, line)
    );
    create table if not exists checkout_payments (
        payment text not null primary key,
        order_number bigint not null references checkout_orders,
        cents bigint not null
    );
    create index if not exists checkout_payments_of_order on checkout_payments (order_number);
    create table if not exists checkout_shipments (
        order_number bigint not null references checkout_orders,
        line bigint not null,
        parcel text not null,
        primary key (order_number, line)
    );
    create table if not exists checkout_receipts (
        order_number bigint not null primary key references checkout_orders,
        parcels bigint not null,
        paid_cents bigint not null,
        refund_cents bigint not null,
        unshipped text
    )";

/// What a new shop has.
const STOCK: &str = "
    insert into checkout_stock (sku, cents, pieces)
    values ('tea', 450, 10000), ('cup', 995, 10000), ('fireworks', 2500, 10000), ('unicorn', 99900, 0)
    on conflict (sku) do nothing";

/// Makes the tables that are not there, and fills the shelves of a new shop.
pub(crate) async fn create(database: &Database) -> sqlx::Result<()> {
    let mut transaction = database.begin().await?;
    let text = match &transaction.connection() {
        Connection::Sqlite(_) => TABLES.replace("{number}", "integer primary key autoincrement"),
        Connection::Postgres(_) => {
            // Two processes that make the tables at once would disturb each other.
            let lock = "select pg_advisory_xact_lock(hashtextextended('checkout tables', 0));";
            lock.to_owned() + &TABLES.replace("{number}", "bigint generated always as identity primary key")
        }
    };
    // Safe: texts of this file.
    let create = sqlx::raw_sql(AssertSqlSafe(text));
    on!(transaction.connection(), connection => create.execute(connection).await.map(drop))?;
    transaction.commit().await?;

    // On its own: it waits for whoever changes the stock, and must not keep the tables locked meanwhile.
    let mut transaction = database.begin().await?;
    on!(transaction.connection(), connection => sqlx::query(STOCK).execute(connection).await.map(drop))?;
    transaction.commit().await
}

/// What the customer ordered, and what the payments add up to.
#[derive(Debug, FromRow)]
pub(crate) struct Order {
    pub(crate) customer: String,
    pub(crate) cents: i64,
    pub(crate) paid_cents: i64,
}

/// A payment of an order.
#[derive(Debug, Serialize, FromRow)]
pub(crate) struct Payment {
    pub(crate) payment: String,
    pub(crate) cents: i64,
}

/// A parcel on its way.
#[derive(Debug, Serialize, FromRow)]
pub(crate) struct Shipped {
    pub(crate) line: i64,
    pub(crate) parcel: String,
}

/// Orders, as they come in.
impl Connection<'_> {
    /// The price of one piece; `None` if the shop has no such thing.
    pub(crate) async fn price(&mut self, sku: &str) -> sqlx::Result<Option<i64>> {
        let price = "select cents from checkout_stock where sku = $1";
        on!(self, connection => sqlx::query_scalar(price).bind(sku).fetch_optional(&mut **connection).await)
    }

    /// Writes an order down; returns its number.
    pub(crate) async fn add_order(&mut self, customer: &str, items: &[Item]) -> sqlx::Result<i64> {
        let order = "insert into checkout_orders (customer, cents) values ($1, $2) returning number";
        let item = "insert into checkout_items (order_number, line, sku, quantity, cents) \
            values ($1, $2, $3, $4, $5)";
        let cents = total(items);
        on!(self, connection => {
            let number: i64 =
                sqlx::query_scalar(order).bind(customer).bind(cents).fetch_one(&mut **connection).await?;
            for Item { line, sku, quantity, cents } in items {
                let insert = sqlx::query(item).bind(number).bind(line).bind(sku).bind(quantity).bind(cents);
                insert.execute(&mut **connection).await?;
            }
            Ok(number)
        })
    }

    pub(crate) async fn order(&mut self, number: i64) -> sqlx::Result<Option<Order>> {
        let order = "select customer, cents, paid_cents from checkout_orders where number = $1";
        on!(self, connection => sqlx::query_as(order).bind(number).fetch_optional(&mut **connection).await)
    }

    pub(crate) async fn items(&mut self, order: i64) -> sqlx::Result<Vec<Item>> {
        let items =
            "select line, sku, quantity, cents from checkout_items where order_number = $1 order by line";
        on!(self, connection => sqlx::query_as(items).bind(order).fetch_all(&mut **connection).await)
    }
}

/// Stock. Shelves are visited in the order of their names, so that two orders never wait for each other in a circle.
impl Connection<'_> {
    /// Takes the items off the shelves; or says of what there is not enough, having taken only some of them.
    pub(crate) async fn take(&mut self, items: &[Item]) -> sqlx::Result<Result<(), String>> {
        let take = "update checkout_stock set pieces = pieces - $2 where sku = $1 and pieces >= $2";
        for (sku, pieces) in by_sku(items) {
            let taken: u64 = on!(self, connection => {
                let taken = sqlx::query(take).bind(sku).bind(pieces).execute(&mut **connection).await?;
                taken.rows_affected()
            });
            if taken == 0 {
                return Ok(Err(sku.to_owned()));
            }
        }
        Ok(Ok(()))
    }

    /// Puts the items back on the shelves.
    pub(crate) async fn give_back(&mut self, items: &[Item]) -> sqlx::Result<()> {
        let give_back = "update checkout_stock set pieces = pieces + $2 where sku = $1";
        for (sku, pieces) in by_sku(items) {
            on!(self, connection => {
                sqlx::query(give_back).bind(sku).bind(pieces).execute(&mut **connection).await?;
            });
        }
        Ok(())
    }
}

/// Payments, parcels and receipts.
impl Connection<'_> {
    /// Adds to what was paid for an order, which nobody else changes until the transaction ends; false if there is no
    /// such order.
    pub(crate) async fn add_to_paid(&mut self, order: i64, cents: i64) -> sqlx::Result<bool> {
        let add = "update checkout_orders set paid_cents = paid_cents + $2 where number = $1";
        on!(self, connection => {
            let add = sqlx::query(add).bind(order).bind(cents);
            Ok(add.execute(&mut **connection).await?.rows_affected() > 0)
        })
    }

    /// What was paid for an order. Nobody adds to it until the transaction ends.
    pub(crate) async fn paid(&mut self, order: i64) -> sqlx::Result<i64> {
        // An update of nothing: both databases understand it as a lock.
        let paid =
            "update checkout_orders set paid_cents = paid_cents where number = $1 returning paid_cents";
        on!(self, connection => sqlx::query_scalar(paid).bind(order).fetch_one(&mut **connection).await)
    }

    /// Writes a payment down; false if there is one with its id.
    pub(crate) async fn add_payment(&mut self, order: i64, payment: &Payment) -> sqlx::Result<bool> {
        let add = "insert into checkout_payments (payment, order_number, cents) values ($1, $2, $3) \
            on conflict (payment) do nothing";
        on!(self, connection => {
            let add = sqlx::query(add).bind(&payment.payment).bind(order).bind(payment.cents);
            Ok(add.execute(&mut **connection).await?.rows_affected() > 0)
        })
    }

    /// The order that a payment was made for.
    pub(crate) async fn order_of(&mut self, payment: &str) -> sqlx::Result<Option<i64>> {
        let order = "select order_number from checkout_payments where payment = $1";
        on!(self, connection => sqlx::query_scalar(order).bind(payment).fetch_optional(&mut **connection).await)
    }

    pub(crate) async fn payments(&mut self, order: i64) -> sqlx::Result<Vec<Payment>> {
        let payments =
            "select payment, cents from checkout_payments where order_number = $1 order by payment";
        on!(self, connection => sqlx::query_as(payments).bind(order).fetch_all(&mut **connection).await)
    }

    pub(crate) async fn add_shipment(&mut self, order: i64, line: i64, parcel: &str) -> sqlx::Result<()> {
        let add = "insert into checkout_shipments (order_number, line, parcel) values ($1, $2, $3)";
        on!(self, connection => {
            sqlx::query(add).bind(order).bind(line).bind(parcel).execute(&mut **connection).await.map(drop)
        })
    }

    pub(crate) async fn shipments(&mut self, order: i64) -> sqlx::Result<Vec<Shipped>> {
        let shipments = "select line, parcel from checkout_shipments where order_number = $1 order by line";
        on!(self, connection => sqlx::query_as(shipments).bind(order).fetch_all(&mut **connection).await)
    }

    pub(crate) async fn add_receipt(&mut self, receipt: &Receipt) -> sqlx::Result<()> {
        let add = "insert into checkout_receipts (order_number, parcels, paid_cents, refund_cents, unshipped) \
            values ($1, $2, $3, $4, $5)";
        let Receipt { order, parcels, paid_cents, refund_cents, unshipped } = receipt;
        on!(self, connection => {
            let add = sqlx::query(add).bind(order).bind(parcels).bind(paid_cents).bind(refund_cents);
            add.bind(unshipped).execute(&mut **connection).await.map(drop)
        })
    }

    pub(crate) async fn receipt(&mut self, order: i64) -> sqlx::Result<Option<Receipt>> {
        let receipt = "select order_number, parcels, paid_cents, refund_cents, unshipped \
            from checkout_receipts where order_number = $1";
        on!(self, connection => sqlx::query_as(receipt).bind(order).fetch_optional(&mut **connection).await)
    }
}

/// How many pieces of each thing.
fn by_sku(items: &[Item]) -> BTreeMap<&str, i64> {
    let mut pieces = BTreeMap::new();
    for item in items {
        *pieces.entry(item.sku.as_str()).or_default() += item.quantity;
    }
    pieces
}

/// What the items cost together.
pub(crate) fn total<'a>(items: impl IntoIterator<Item = &'a Item>) -> i64 {
    items.into_iter().map(|item| item.cents * item.quantity).sum()
}
