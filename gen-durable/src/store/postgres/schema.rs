//! The name of the schema that holds our tables.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// Name of the schema if none is chosen.
pub const DEFAULT_SCHEMA: &str = "gen_durable";

/// Longest identifier that PostgreSQL keeps whole.
const MAX_LENGTH: usize = 63;

/// A name that is safe as a schema's and as a notification channel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema(Arc<str>);

impl Schema {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] unless the name is 1 to 63 lower-case letters, digits and underscores, not beginning
    /// with a digit or `pg_`.
    pub fn new(name: &str) -> Result<Self, Error> {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        if !starts_well || !name.chars().all(known) || name.len() > MAX_LENGTH {
            return Err(Error::option(
                "schema",
                format!(
                    "`{name}` cannot name a schema; use 1 to {MAX_LENGTH} lower-case letters, digits and \
                     underscores, beginning with a letter or an underscore"
                ),
            ));
        }
        if name.starts_with("pg_") {
            let problem =
                format!("`{name}` cannot name a schema; PostgreSQL keeps names in `pg_` for itself");
            return Err(Error::option("schema", problem));
        }
        Ok(Self(name.into()))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// A statement's text with this schema in the place of each `{schema}`.
    pub(crate) fn put_into(&self, statement: &str) -> String {
        statement.replace("{schema}", &format!("\"{}\"", self.0))
    }
}

impl Default for Schema {
    fn default() -> Self {
        Self(DEFAULT_SCHEMA.into())
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_identifiers_are_schemas() {
        for name in ["a", "_", "gen_durable", "tenant_42", "select", &"x".repeat(63)] {
            assert_eq!(Schema::new(name).expect(name).name(), name);
        }
    }

    #[test]
    fn whatever_could_change_a_statement_is_refused() {
        for name in ["", "4you", "Mixed", "a b", "a\"b", "a;b", "a'b", "a.b", "é", "pg_x", &"x".repeat(64)] {
            let error = Schema::new(name).expect_err(name);
            assert!(error.to_string().contains("`schema`"), "{error}");
        }
    }

    #[test]
    fn the_name_is_quoted_in_statements() {
        let schema = Schema::new("order").expect("a reserved word is fine, quoted");
        assert_eq!(schema.put_into("from {schema}.instances"), "from \"order\".instances");
    }
}
