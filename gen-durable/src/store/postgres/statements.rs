//! The texts of all statements, with the schema put in.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use super::schema::Schema;

/// A statement's name and text.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(crate) name: &'static str,
    text: SqlStr,
}

impl Statement {
    /// The statement in a file, with parts of its text replaced.
    fn of(name: &'static str, file: &str, schema: &Schema, replaced: &[(&str, &str)]) -> Self {
        let mut file = file.to_owned();
        for (part, by) in replaced {
            debug_assert!(file.contains(part), "`{part}` is not in `{name}`");
            file = file.replace(part, by);
        }
        // Explanations stay here; the name goes along, for whoever looks at what the server is doing.
        let lines: Vec<&str> = file.lines().filter(|line| !line.starts_with("--")).collect();
        let text = format!("-- gen-durable: {name}\n{}", schema.put_into(&lines.join("\n")));
        // Safe: a static text, and a schema that holds letters, digits and underscores.
        Self { name, text: AssertSqlSafe(std::sync::Arc::<str>::from(text)).into_sql_str() }
    }

    /// The text, cheap to clone.
    pub(crate) fn text(&self) -> SqlStr {
        self.text.clone()
    }
}

macro_rules! statements {
    ($($name:ident $(of $file:ident)? $([$($part:literal: $by:expr),*])?;)*) => {
        /// One field a file in `sql/`, or a variant of one.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $name: Statement,)*
        }

        impl Statements {
            pub(crate) fn new(schema: &Schema) -> Self {
                Self {
                    $($name: Statement::of(
                        stringify!($name),
                        statements!(@file $name $($file)?),
                        schema,
                        &[$($(($part, $by)),*)?],
                    ),)*
                }
            }

            /// All of them, for tests.
            pub(crate) fn all(&self) -> Vec<&Statement> {
                vec![$(&self.$name),*]
            }
        }
    };
    (@file $name:ident) => { include_str!(concat!("sql/", stringify!($name), ".sql")) };
    (@file $name:ident $file:ident) => { include_str!(concat!("sql/", stringify!($file), ".sql")) };
}

/// Bounds how long a statement of the engine waits for a lock.
const PATIENCE: &str = "(select set_config('lock_timeout', '20ms', true)) is not null";
/// A row whose id or key is there already is left alone.
const LEAVES_ALONE: &str = "\non conflict do nothing";
const RETURNS_ID: &str = "\non conflict do nothing\nreturning id";

statements! {
    announce;
    await_row;
    beat;
    bring_back;
    bury;
    cancel;
    cancel_in_transaction of cancel ["skip locked": ""];
    cascade;
    children;
    claim;
    coordinate;
    counts;
    find;
    flush;
    hasten;
    held;
    holders;
    inbox;
    insert ["{end}": ""];
    insert_again of insert ["{end}": LEAVES_ALONE];
    insert_children of insert_related ["{patience}": "true", "{end}": ""];
    insert_keyed of insert_related ["{patience}": PATIENCE, "{end}": RETURNS_ID];
    insert_in_transaction of insert_related ["{patience}": "true", "{end}": RETURNS_ID];
    installed;
    keeps_books;
    machines;
    mark_unserved;
    next_start;
    notify;
    notify_in_transaction;
    probe;
    promote;
    reclaim;
    register_machines;
    register_worker;
    release;
    retire;
    retry;
    set_aside;
    settle;
    signal;
    signal_in_transaction of signal ["skip locked": ""];
    sweep_instances;
    sweep_workers;
    tell_parents;
    unjoined;
    watch;
    workers;
}
