//! A SQLite file for one test, and engines on it.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use gen_durable::store::Store;
use gen_durable::store::sqlite::{SqliteStore, Synchronous};
use gen_durable::{Engine, EngineBuilder, InstanceId};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use uuid::Uuid;

use crate::bed::{TestClock, for_tests};

/// Tells a child process of a test which file is its parent's.
const PARENTS: &str = "GEN_DURABLE_TEST_FILE";

/// A SQLite file of one test, gone with its directory when the value drops.
#[derive(Debug)]
pub struct SqliteBed {
    path: PathBuf,
    ours: bool,
}

impl SqliteBed {
    /// A file that is not there yet, in a new directory.
    ///
    /// # Panics
    ///
    /// When the directory cannot be made.
    #[expect(clippy::unused_async, reason = "as with every bed")]
    pub async fn create() -> Self {
        let directory = env::temp_dir().join(format!("gen-durable-{}", Uuid::now_v7().simple()));
        fs::create_dir(&directory).expect("a directory for the file");
        Self { path: directory.join("test.db"), ours: true }
    }

    /// In a [child](Self::child) process: the file of the parent.
    ///
    /// # Panics
    ///
    /// When there is no such parent: the test was run by hand.
    pub fn of_parent() -> Self {
        let path = env::var_os(PARENTS).expect("only a child made by `SqliteBed::child` has a parent");
        Self { path: path.into(), ours: false }
    }

    /// A process that runs one `#[ignore]`d test of this test binary on this file; kill it at will.
    ///
    /// # Errors
    ///
    /// The path of this binary is unknown.
    pub fn child(&self, test: &str) -> io::Result<Command> {
        let mut child = Command::new(env::current_exe()?);
        child
            .args(["--ignored", "--exact", "--nocapture", "--test-threads=1", test])
            .env(PARENTS, &self.path);
        Ok(child)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Connections of the test's own to the file, which must be there.
    pub fn pool(&self) -> SqlitePool {
        SqlitePool::connect_lazy_with(SqliteConnectOptions::new().filename(&self.path).foreign_keys(false))
    }

    /// A store on the file, with connections of its own.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::file(&self.path, Synchronous::Normal))
    }

    /// The clock that delays go by.
    pub fn clock(&self) -> TestClock {
        TestClock::Process
    }

    /// Makes a row ready as an older or newer build would have left it.
    ///
    /// # Panics
    ///
    /// When there is no such row.
    pub async fn leave(&self, id: InstanceId, step: &str, state: &str) {
        let text = "update gen_durable_instances
            set step = ?2, state = ?3, status = 'ready', eligible_at = ?4, finished_at = null, error = null
            where id = ?1";
        let left = sqlx::query(text)
            .bind(id.as_uuid())
            .bind(step)
            .bind(state)
            .bind(self.clock().micros().await)
            .execute(&self.pool())
            .await;
        assert_eq!(left.expect("it is left").rows_affected(), 1);
    }

    /// An engine for this test: a name of its own, no discovered jobs, and short intervals.
    pub fn engine(&self) -> EngineBuilder {
        for_tests(Engine::sqlite(&self.path).synchronous(Synchronous::Normal))
    }
}

impl Drop for SqliteBed {
    fn drop(&mut self) {
        if let (true, Some(directory)) = (self.ours, self.path.parent()) {
            let _ = fs::remove_dir_all(directory);
        }
    }
}
