//! Transfers between accounts, each in two steps: one withdraws, the next one deposits, each in one transaction with its
//! outcome.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gen_durable::prelude::*;
use gen_durable::{EngineBuilder, Status};
use gen_durable_tests::{Process, end_with_parent, until};
use sqlx::{AssertSqlSafe, Pool};
use uuid::Uuid;

use super::{Bed, Database, INSTANCES, KILLS, child, pool};
use crate::fleet::random;

const TRANSFERS: i64 = 1_000;
const ACCOUNTS: i64 = 10;
const BALANCE: i64 = 10_000;

/// The key of `applied` admits each step of a transfer once; on top of that, balances tell.
const TABLES: &str = "
    create table accounts (id bigint primary key, balance bigint not null);
    create table applied (
        transfer bigint not null,
        step text not null,
        amount bigint not null,
        primary key (transfer, step)
    );
";

/// Moves money.
#[durable_fsm(output = i64, queue = "transfers")]
#[derive(Debug)]
pub enum Transfer {
    /// Takes it from the one.
    #[state(initial, next(Deposit))]
    Withdraw {
        /// Which transfer.
        number: i64,
    },
    /// Gives it to the other.
    #[state(finishes)]
    Deposit {
        /// Which transfer.
        number: i64,
    },
}

/// Account to take from, account to give to, and how much.
fn terms(number: i64) -> (i64, i64, i64) {
    (number % ACCOUNTS, (number * 7 + 3) % ACCOUNTS, number % 97 + 1)
}

struct Bank {
    /// Gets a byte at each start of a step, also if that dies.
    starts: File,
}

/// Tells the process where that file is.
const STARTS: &str = "TRANSFERS_STARTS";

impl Bank {
    /// Writes what a step of a transfer does.
    async fn apply(
        &self,
        connection: &mut <Database as sqlx::Database>::Connection,
        number: i64,
        step: &str,
        account: i64,
        amount: i64,
    ) -> Result<(), StepError> {
        (&self.starts).write_all(b".")?;
        let change = "update accounts set balance = balance + $1 where id = $2";
        sqlx::query(change).bind(amount).bind(account).execute(&mut *connection).await?;
        // A moment in which the process may die.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let note = "insert into applied (transfer, step, amount) values ($1, $2, $3)";
        sqlx::query(note).bind(number).bind(step).bind(amount).execute(connection).await?;
        Ok(())
    }
}

impl TransferSteps for Bank {
    async fn withdraw(&self, s: Withdraw, cx: &mut Context<Withdraw>) -> StepResult<Withdraw> {
        let (from, _, amount) = terms(s.number);
        let mut tx = cx.begin::<Database>().await?;
        self.apply(&mut tx, s.number, "withdraw", from, -amount).await?;
        tx.finish(cx.next(Deposit { number: s.number })).await
    }

    async fn deposit(&self, s: Deposit, cx: &mut Context<Deposit>) -> StepResult<Deposit> {
        let (_, to, amount) = terms(s.number);
        let mut tx = cx.begin::<Database>().await?;
        self.apply(&mut tx, s.number, "deposit", to, amount).await?;
        tx.finish(cx.done(amount)).await
    }
}

/// A node that takes the claims of its dead namesake back soon, and gives up nothing that died with it.
fn node(bed: &Bed, starts: File) -> EngineBuilder {
    let beat = Duration::from_millis(50);
    bed.engine()
        .name("bank")
        .node("a")
        .queue("transfers", 8)
        .max_crashes(1_000)
        .lease_ttl(Duration::from_secs(1))
        .heartbeat(beat)
        .reaper(beat)
        .register(Transfer::machine(Bank { starts }))
}

/// The file that gets a byte at each start of a step.
struct Starts(PathBuf);

impl Starts {
    fn new() -> Self {
        Self(env::temp_dir().join(format!("gen-durable-starts-{}", Uuid::now_v7().simple())))
    }

    fn count(&self) -> u64 {
        fs::metadata(&self.0).unwrap().len()
    }
}

impl Drop for Starts {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

async fn number(pool: &Pool<Database>, query: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(pool).await.unwrap()
}

/// What is in the accounts and on its way between them.
const MONEY: &str = "
    select cast((select sum(a.balance) from accounts a) - (select coalesce(sum(p.amount), 0) from applied p) as bigint)
";
const APPLIED: &str = "select count(*) from applied";

#[tokio::test]
async fn transfers_of_a_process_that_is_killed_30_times_are_applied_once() {
    let bed = Bed::create().await;
    let web = bed.engine().without_queues().start().await.unwrap();
    let pool = pool(&bed);
    sqlx::raw_sql(TABLES).execute(&pool).await.unwrap();
    for account in 0..ACCOUNTS {
        let open = "insert into accounts (id, balance) values ($1, $2)";
        sqlx::query(open).bind(account).bind(BALANCE).execute(&pool).await.unwrap();
    }
    web.insert_all((0..TRANSFERS).map(|number| Withdraw { number })).await.unwrap();

    let began = Instant::now();
    let starts = Starts::new();
    let start = || {
        let mut child = child(&bed);
        child.env(STARTS, &starts.0);
        Process::start(child).unwrap()
    };
    let mut process = start();
    let steps = u64::try_from(2 * TRANSFERS).unwrap();
    for kill in 0..KILLS {
        // Somewhere in the work that is left, such that all kills fall into it.
        let before = number(&pool, APPLIED).await;
        let share = (steps - before.unsigned_abs()) / (KILLS - kill + 5);
        let moment = before + i64::try_from(1 + random(share)).unwrap();
        until("transfers are made", || async { number(&pool, APPLIED).await >= moment }).await;
        // Between two looks, too.
        tokio::time::sleep(Duration::from_millis(random(20))).await;
        assert!(!process.has_ended(), "it ended by itself");
        process.kill();
        // Withdrawals are negative: what is noted is what has moved.
        assert_eq!(number(&pool, MONEY).await, ACCOUNTS * BALANCE, "each step's writes are there or not");
        process = start();
    }
    let killed = began.elapsed();
    assert!(number(&pool, APPLIED).await < 2 * TRANSFERS, "the last kill came while there was work");
    let unfinished =
        format!("select count(*) from {INSTANCES} where status not in ('done', 'failed', 'cancelled')");
    until("all are made", || async { number(&pool, &unfinished).await == 0 }).await;
    process.kill();

    let counts = web.counts().await.unwrap();
    let counts: Vec<_> = counts.iter().map(|count| (count.status, count.count)).collect();
    assert_eq!(counts, [(Status::Done, TRANSFERS.unsigned_abs())]);
    assert_eq!(number(&pool, APPLIED).await, 2 * TRANSFERS);
    let sum = "select cast(sum(balance) as bigint) from accounts";
    assert_eq!(number(&pool, sum).await, ACCOUNTS * BALANCE, "the sum of the accounts has not changed");
    for account in 0..ACCOUNTS {
        let moved = |number: i64| {
            let (from, to, amount) = terms(number);
            i64::from(to == account) * amount - i64::from(from == account) * amount
        };
        let expected = BALANCE + (0..TRANSFERS).map(moved).sum::<i64>();
        let balance = number(&pool, &format!("select balance from accounts where id = {account}")).await;
        assert_eq!(balance, expected, "account {account}");
    }
    let died = starts.count() - steps;
    assert!(died > 0, "steps died in their transactions");
    println!(
        "{KILLS} kills in {killed:?}, {died} starts were in vain; {TRANSFERS} transfers after {:?}",
        began.elapsed()
    );
    web.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run as a child"]
async fn child_makes_transfers() {
    end_with_parent();
    let starts = File::options().append(true).create(true).open(env::var_os(STARTS).unwrap()).unwrap();
    let engine = node(&Bed::of_parent(), starts).start().await.unwrap();
    // Until killed.
    std::future::pending::<()>().await;
    drop(engine);
}
