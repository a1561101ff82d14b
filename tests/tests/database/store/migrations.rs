//! Installing, twice, at once, killed half-way, and taking back.

use std::sync::Arc;

use gen_durable::Error;
use gen_durable::migrate;
use gen_durable::store::Store;
use gen_durable::store::postgres::{PostgresStore, Schema};
use gen_durable_tests::Database;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool, raw_sql};

use super::setup::{Fixture, done};

/// Everything in the database that is not PostgreSQL's own, but for when and in what order it was made.
async fn contents(pool: &PgPool) -> Vec<String> {
    let objects = "
        select n.nspname || '.' || c.relname || ' ' || c.relkind::text || ' ' || coalesce(c.reloptions::text, '')
            || coalesce((select string_agg(a.attname || ':' || format_type(a.atttypid, a.atttypmod), ','
                order by a.attnum) from pg_attribute a where a.attrelid = c.oid and a.attnum > 0), '')
            || coalesce(pg_get_indexdef(c.oid), '')
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname !~ '^(pg_|information_schema)'
        union all
        select 'type ' || n.nspname || '.' || t.typname || ' ' || t.typtype::text
        from pg_type t join pg_namespace n on n.oid = t.typnamespace
        where n.nspname !~ '^(pg_|information_schema)'
        order by 1";
    sqlx::query_scalar(objects).fetch_all(pool).await.expect("the catalogue")
}

async fn execute(pool: &PgPool, text: impl Into<String>) {
    let text = text.into();
    raw_sql(AssertSqlSafe(text.clone())).execute(pool).await.expect(&text);
}

/// R44
#[tokio::test]
async fn twenty_nodes_that_start_at_once_migrate_once() {
    let database = Database::create().await;
    let nodes = (0..20).map(|_| {
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(database.options());
        async move { migrate::up(&pool).await }
    });
    for migrated in futures_util::future::join_all(nodes).await {
        migrated.expect("it migrates or finds it done");
    }
    let pool = database.pool();
    assert_eq!(migrate::version(&pool).await.expect("a version"), 1);
    let rows: i64 = sqlx::query_scalar("select count(*) from gen_durable.migrations")
        .fetch_one(&pool)
        .await
        .expect("the count");
    assert_eq!(rows, 1);
}

/// R44
#[tokio::test]
async fn migration_that_is_killed_half_way_leaves_nothing_and_the_next_one_completes() {
    let database = Database::create().await;
    let pool = database.pool();
    let empty = contents(&pool).await;
    // It stops half-way: somebody holds the name of the last object that it makes.
    execute(&pool, "create schema gen_durable").await;
    let mut blocker = pool.begin().await.expect("it begins");
    sqlx::query("create view gen_durable.overview as select 1").execute(&mut *blocker).await.expect("a view");

    let victim = PgPoolOptions::new().max_connections(1).connect_lazy_with(database.options());
    let migrating = tokio::spawn(async move { migrate::up(&victim).await });
    let waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock'
        and datname = current_database()";
    let pid: i32 = loop {
        if let Some(pid) = sqlx::query_scalar(waiting).fetch_optional(&pool).await.expect("the activity") {
            break pid;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    sqlx::query("select pg_terminate_backend($1)").bind(pid).execute(&pool).await.expect("it is killed");
    let error = migrating.await.expect("it returns").expect_err("it was killed");
    assert!(matches!(error, Error::Store { .. }), "{error:?}");
    blocker.rollback().await.expect("it gives way");

    assert_eq!(contents(&pool).await, empty);
    assert_eq!(migrate::version(&pool).await.expect("a version"), 0);
    migrate::up(&pool).await.expect("it completes");
    assert_eq!(migrate::version(&pool).await.expect("a version"), 1);
}

#[tokio::test]
async fn down_takes_back_everything_and_up_installs_it_again() {
    let f = Fixture::new().await;
    f.insert(3).await;
    let installed = contents(&f.pool).await;
    migrate::up(&f.pool).await.expect("there is nothing to do");
    assert_eq!(contents(&f.pool).await, installed);
    migrate::down(&f.pool, 1).await.expect("there is nothing to do");
    assert_eq!(contents(&f.pool).await, installed);
    migrate::down(&f.pool, 0).await.expect("it is undone");
    migrate::down(&f.pool, 0).await.expect("there is nothing to undo");
    assert_eq!(contents(&f.pool).await, Vec::<String>::new());
    migrate::up(&f.pool).await.expect("it is installed again");
    assert_eq!(contents(&f.pool).await, installed);
}

#[tokio::test]
async fn sql_for_other_tools_does_the_same_as_up() {
    let (by_us, by_tool) = tokio::join!(Database::create(), Database::create());
    migrate::schema("orders").up(&by_us.pool()).await.expect("it migrates");
    execute(&by_tool.pool(), migrate::schema("orders").sql(0).expect("the text")).await;
    assert_eq!(contents(&by_us.pool()).await, contents(&by_tool.pool()).await);
    let books = "select version || ' ' || oldest_code from orders.migrations";
    let read = async |database: &Database| -> Vec<String> {
        sqlx::query_scalar(books).fetch_all(&database.pool()).await.expect("the books")
    };
    assert_eq!(read(&by_us).await, read(&by_tool).await);
}

#[tokio::test]
async fn check_says_what_to_do_about_a_database_that_does_not_fit() {
    let database = Database::create().await;
    let pool = database.pool();
    let store = super::setup::store(&database);
    let problem = async || store.check().await.expect("it answers");
    assert!(problem().await.expect_err("nothing there").contains("migrate::up"));
    migrate::up(&pool).await.expect("it migrates");
    assert_eq!(problem().await, Ok(()));
    execute(&pool, "insert into gen_durable.migrations values (2, 1)").await;
    assert_eq!(problem().await, Ok(()), "a newer schema that admits us");
    execute(&pool, "insert into gen_durable.migrations values (3, 99)").await;
    assert!(problem().await.expect_err("too new").contains("deploy a newer build"));
    let error = migrate::down(&pool, 0).await.expect_err("made by a newer build");
    assert!(error.to_string().contains("the build that migrated it"), "{error}");
}

/// A schema made by somebody with more rights is enough.
#[tokio::test]
async fn no_right_to_create_schemas_is_needed_when_the_schema_exists() {
    let database = Database::create().await;
    let name = format!("plain_{}", uuid::Uuid::now_v7().simple());
    let setup = format!(
        "create role {name} login; create schema ours authorization {name};
         revoke create on schema public from public;"
    );
    execute(&database.pool(), setup).await;
    let plain = PgPoolOptions::new().connect_lazy_with(database.options().username(&name));
    migrate::schema("ours").up(&plain).await.expect("it migrates");
    let refused = migrate::schema("elsewhere").up(&plain).await;
    assert!(matches!(refused, Err(Error::Store { .. })));
    drop(plain);
    execute(&database.pool(), format!("drop owned by {name}; drop role {name}")).await;
}

/// R43
#[tokio::test]
async fn two_installs_in_one_database_ignore_each_other_and_the_search_path() {
    let database = Arc::new(Database::create().await);
    let trap = "
        create schema trap;
        create table trap.instances (id int);
        create table trap.workers (id int);
        create table trap.machines (id int);
        create table trap.migrations (version text);
        create type trap.status as enum ('trapped');
        create function trap.unnest(uuid[]) returns int language sql as 'select 1/0';
        create function trap.array_position(int[], int) returns int language sql as 'select 1/0';";
    execute(&database.pool(), trap).await;
    let hostile = database.options().options([("search_path", "trap")]);
    let pool = PgPoolOptions::new().connect_lazy_with(hostile);
    let mut stores = Vec::new();
    for name in ["one", "user"] {
        migrate::schema(name).up(&pool).await.expect("it migrates");
        let store = PostgresStore::new(pool.clone(), Schema::new(name).expect("a name"), None);
        assert_eq!(store.check().await.expect("it answers"), Ok(()));
        stores.push(store);
    }
    let [one, two] = <[_; 2]>::try_from(stores).expect("two");
    let f = Fixture::with(one, &database).await;
    let id = f.insert(1).await[0];
    let g = Fixture::with(two, &database).await;
    assert!(g.claim(1).await.is_empty() && g.store.probe(&[id], true).await.expect("it reads").is_empty());
    let mut listener = g.store.listen().await.expect("it listens").expect("there are others");
    f.store.notify(&[gen_durable::store::Poke::Due(1)]).await.expect("it tells its own");
    g.store.notify(&[gen_durable::store::Poke::Due(2)]).await.expect("it tells its own");
    assert_eq!(listener.next().await.expect("a poke"), gen_durable::store::Poke::Due(2));

    let row = f.claim(1).await.remove(0);
    f.flush(&[done(&row)]).await;
    f.store.promote(1).await.expect("it promotes");
    f.store.reclaim(1).await.expect("it reclaims");
    assert_eq!(f.store.counts().await.expect("it counts").len(), 1);
    migrate::schema("user").down(&pool, 0).await.expect("one goes");
    assert_eq!(f.store.sweep(std::time::Duration::ZERO, 10).await.expect("the other stays").instances, 1);
}
