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
    fn new(name: &'static str, file: &str, schema: &Schema) -> Self {
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
    ($($name:ident)*) => {
        /// One field a file in `sql/`.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $name: Statement,)*
        }

        impl Statements {
            pub(crate) fn new(schema: &Schema) -> Self {
                Self {
                    $($name: Statement::new(
                        stringify!($name),
                        include_str!(concat!("sql/", stringify!($name), ".sql")),
                        schema,
                    ),)*
                }
            }

            /// All of them, for tests.
            pub(crate) fn all(&self) -> Vec<&Statement> {
                vec![$(&self.$name),*]
            }
        }
    };
}

statements! {
    announce beat bring_back bury claim counts flush hasten held insert insert_again installed keeps_books machines
    mark_unserved notify probe promote reclaim register_machines register_worker release retire set_aside settle
    sweep_instances sweep_workers watch workers
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_inserts_differ_only_in_what_they_do_about_rows_that_are_there() {
        let statement = |file: &'static str| file.split_once("insert into").map(|(_, rest)| rest.trim_end());
        let once = statement(include_str!("sql/insert.sql")).expect("a statement");
        let again = statement(include_str!("sql/insert_again.sql")).expect("a statement");
        assert_eq!(again, format!("{once}\non conflict (id) do nothing"));
    }
}
