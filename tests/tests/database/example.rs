//! The example programs, run on a database of a test.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use gen_durable_tests::{Database, SqliteBed};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

/// Where a program keeps what it does.
pub(crate) enum Place {
    Sqlite(SqliteBed, SqlitePool),
    Postgres(Box<Database>, PgPool),
}

impl Place {
    pub(crate) async fn on_sqlite() -> Self {
        let bed = SqliteBed::create().await;
        let pool = bed.pool();
        Self::Sqlite(bed, pool)
    }

    pub(crate) async fn on_postgres() -> Self {
        let database = Database::create().await;
        let pool = database.pool();
        Self::Postgres(Box::new(database), pool)
    }

    /// The program, to be started here; its output is not shown.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        match self {
            Self::Sqlite(bed, _) => command.env_remove("DATABASE_URL").arg("--database").arg(bed.path()),
            Self::Postgres(database, _) => command.env("DATABASE_URL", database.url()),
        };
        command
    }

    /// What a query yields, which names the library's view `{overview}`; an error while there are no tables.
    pub(crate) async fn ask<T>(&self, query: &str) -> sqlx::Result<T>
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        let text = |overview| AssertSqlSafe(query.replace("{overview}", overview));
        match self {
            Self::Sqlite(_, pool) => sqlx::query_scalar(text("gen_durable_overview")).fetch_one(pool).await,
            Self::Postgres(_, pool) => sqlx::query_scalar(text("gen_durable.overview")).fetch_one(pool).await,
        }
    }

    pub(crate) async fn number(&self, query: &str) -> u64 {
        self.ask::<i64>(query).await.expect(query).cast_unsigned()
    }
}

pub(crate) fn kill(mut child: Child) {
    child.kill().expect("SIGKILL is sent");
    child.wait().expect("it is gone");
}

/// Sends a signal by its name: `INT`, `TERM`.
pub(crate) fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill -{signal} works");
}

/// An example with the profile of this test; built unless it is there and as new as its sources.
pub(crate) fn built(example: &str) -> PathBuf {
    let here = env::current_exe().expect("this binary has a path");
    let profile_directory = here.parent().and_then(Path::parent).expect("it is in `deps`");
    let program = profile_directory.join("examples").join(example);
    if !is_fresh(&program).unwrap_or(false) {
        let release = profile_directory.file_name().is_some_and(|name| name == "release");
        let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            // All of the workspace, as its tests are built: another choice would build the dependencies once more.
            .args(["build", "--quiet", "--workspace", "--example", example])
            .args(release.then_some("--release"))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the example does not build");
    }
    program
}

/// Whether no source is newer than the program, by the list that cargo leaves beside it.
fn is_fresh(program: &Path) -> io::Result<bool> {
    let built = fs::metadata(program)?.modified()?;
    let list = fs::read_to_string(program.with_extension("d"))?;
    // A space in a name is escaped in the list; the halves of such a name are not found, which is not fresh.
    for source in list.split_whitespace().skip(1) {
        if fs::metadata(source)?.modified()? > built {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    out + &err
}
