//! What happens to one file: three states, each committed before the next one begins.

use std::io;
use std::path::Path;
use std::time::Duration;

use gen_durable::prelude::*;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::content::{self, Figures, Print};
use crate::database::Database;
use crate::path::FilePath;
use crate::table;

/// One file of a run.
///
/// States hold what the next step needs and nothing large: the content stays in the file.
#[durable_fsm]
#[derive(Debug)]
pub(crate) enum IngestFile {
    /// Read the file through and hash it.
    #[state(initial, next(Measure, Store))]
    Read { run: Uuid, path: FilePath },
    /// Count its lines and words.
    #[state(next(Store))]
    Measure { run: Uuid, path: FilePath, print: Print },
    /// Write what was found into the run's table.
    #[state(finishes)]
    Store { run: Uuid, path: FilePath, findings: Findings },
}

/// What is known of a file in the end. A file that cannot be read is a finding, too.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Findings {
    Text(Print, Figures),
    Binary(Print),
    Unreadable(String),
}

/// What the steps need.
pub(crate) struct Steps {
    pub(crate) database: Database,
}

impl IngestFileSteps for Steps {
    async fn read(&self, s: Read, cx: &mut Context<Read>) -> StepResult<Read> {
        let print = on_content_of(&s.path, content::print).await?;
        Ok(cx.next(Measure { run: s.run, path: s.path, print }))
    }

    async fn on_read_error(&self, s: Read, error: StepError, cx: &mut Context<Read>) -> StepResult<Read> {
        if may_pass(&error, cx.attempt() - cx.crashes()) {
            return Ok(cx.retry(s, PAUSE));
        }
        Ok(cx.next(Store { run: s.run, path: s.path, findings: Findings::Unreadable(error.to_string()) }))
    }

    async fn measure(&self, s: Measure, cx: &mut Context<Measure>) -> StepResult<Measure> {
        let findings = match on_content_of(&s.path, content::figures).await? {
            Some(figures) => Findings::Text(s.print, figures),
            None => Findings::Binary(s.print),
        };
        Ok(cx.next(Store { run: s.run, path: s.path, findings }))
    }

    async fn on_measure_error(
        &self,
        s: Measure,
        error: StepError,
        cx: &mut Context<Measure>,
    ) -> StepResult<Measure> {
        if may_pass(&error, cx.attempt() - cx.crashes()) {
            return Ok(cx.retry(s, PAUSE));
        }
        Ok(cx.next(Store { run: s.run, path: s.path, findings: Findings::Unreadable(error.to_string()) }))
    }

    /// May run again after its row was written but before its outcome was committed: then it writes the same
    /// row once more, so that the file still counts once.
    async fn store(&self, s: Store, cx: &mut Context<Store>) -> StepResult<Store> {
        table::store(&self.database, s.run, &s.path, &s.findings).await?;
        Ok(cx.done(()))
    }

    /// Without its table the run has nowhere to go: it waits for the database as long as that takes.
    async fn on_store_error(&self, s: Store, error: StepError, cx: &mut Context<Store>) -> StepResult<Store> {
        match error.downcast_ref::<sqlx::Error>() {
            Some(_) => Ok(cx.retry(s, PAUSE)),
            None => Err(error),
        }
    }
}

/// How long to rest between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// Whether to try again: some errors pass, those about the file itself do not, nor does the third one.
fn may_pass(error: &StepError, failures: u32) -> bool {
    use io::ErrorKind::{IsADirectory, NotFound, PermissionDenied};
    let lasting = error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| matches!(error.kind(), IsADirectory | NotFound | PermissionDenied));
    !lasting && !error.is_fatal() && failures < 2
}

/// Reads files where blocking is allowed.
async fn on_content_of<T: Send + 'static>(
    path: &FilePath,
    work: fn(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let path = path.clone();
    spawn_blocking(move || work(path.as_path())).await?
}
