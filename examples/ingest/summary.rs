//! What a run found, for people.

use std::io::{self, Write};

use sqlx::AssertSqlSafe;

use crate::database::{Database, with_pool};
use crate::table::Run;

/// How many kinds of files are shown one by one.
const KINDS: usize = 12;
/// How many problems are shown.
const PROBLEMS: usize = 20;

/// By the name's extension. Sums of figures leave out binary files, which have none.
const BY_KIND: &str = "
    select
        kind, count(*), cast(coalesce(sum(bytes), 0) as bigint), cast(coalesce(sum(lines), 0) as bigint),
        cast(coalesce(sum(words), 0) as bigint), coalesce(max(longest_line), 0)
    from ingest_files
    where run = $1 and problem is null
    group by kind
    order by count(*) desc, kind";

/// Files that the run could not read, and instances that the library set aside.
const WITH_PROBLEMS: &str = "
    select name, problem from ingest_files where run = $1 and problem is not null
    union all
    select coalesce(state ->> 'path', ''), coalesce(error, cast(status as text)) from {overview}
    where queue = $2 and status in ('failed', 'cancelled')
    order by 1";

const DISTINCT: &str = "select count(distinct sha256) from ingest_files where run = $1";

/// A line of the table: kind, files, bytes, lines, words, longest line.
type Line = (String, i64, i64, i64, i64, i64);

pub(crate) async fn print(run: &Run, database: &Database) -> Result<(), gen_durable::BoxError> {
    // Safe: texts of this program.
    let with_problems = AssertSqlSafe(WITH_PROBLEMS.replace("{overview}", database.overview()));
    let kinds: Vec<Line>;
    let distinct: i64;
    let problems: Vec<(String, String)>;
    with_pool!(database, pool => {
        kinds = sqlx::query_as(BY_KIND).bind(run.id).fetch_all(pool).await?;
        distinct = sqlx::query_scalar(DISTINCT).bind(run.id).fetch_one(pool).await?;
        problems = sqlx::query_as(with_problems).bind(run.id).bind(run.queue()).fetch_all(pool).await?;
    });

    let mut lines = kinds;
    let total = sum("total", &lines);
    if lines.len() > KINDS {
        let others = sum("(others)", &lines.split_off(KINDS));
        lines.push(others);
    }
    lines.push(total);

    let mut out = io::stdout().lock();
    write_row(&mut out, ["kind", "files", "bytes", "lines", "words", "longest line"].map(String::from))?;
    for (kind, files, bytes, lines, words, longest) in lines {
        let [files, bytes, lines, words, longest] =
            [files, bytes, lines, words, longest].map(|n| n.to_string());
        write_row(&mut out, [kind, files, bytes, lines, words, longest])?;
    }
    writeln!(out, "\n{distinct} distinct contents")?;
    if !problems.is_empty() {
        writeln!(out, "{} could not be counted:", problems.len())?;
        for (name, problem) in problems.iter().take(PROBLEMS) {
            writeln!(out, "  {name}: {problem}")?;
        }
        if problems.len() > PROBLEMS {
            writeln!(
                out,
                "  and {} more: see `problem` in the table ingest_files",
                problems.len() - PROBLEMS
            )?;
        }
    }
    Ok(out.flush()?)
}

fn sum(name: &str, lines: &[Line]) -> Line {
    lines.iter().fold((name.to_owned(), 0, 0, 0, 0, 0), |sum, line| {
        (sum.0, sum.1 + line.1, sum.2 + line.2, sum.3 + line.3, sum.4 + line.4, sum.5.max(line.5))
    })
}

fn write_row(
    out: &mut impl Write,
    [kind, files, bytes, lines, words, longest]: [String; 6],
) -> io::Result<()> {
    writeln!(out, "{kind:<12} {files:>9} {bytes:>15} {lines:>12} {words:>13} {longest:>13}")
}
