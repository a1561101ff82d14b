//! What a command found, for people and for programs.

use std::fs;
use std::io::{self, Write};
use std::thread::available_parallelism;

use serde_json::{Map, Value, json};
use sqlx::PgPool;

/// The facts behind a measurement and the tables of its results.
#[derive(Debug)]
pub(crate) struct Report {
    command: &'static str,
    facts: Vec<(&'static str, Value)>,
    tables: Vec<Table>,
    figures: Vec<(&'static str, Value)>,
}

#[derive(Debug)]
struct Table {
    name: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
}

impl Report {
    /// A report that begins with what every number depends on: cores, build and server.
    pub(crate) async fn of(command: &'static str, pool: &PgPool) -> sqlx::Result<Self> {
        let mut report = Self { command, facts: Vec::new(), tables: Vec::new(), figures: Vec::new() };
        let server: String = sqlx::query_scalar("select version()").fetch_one(pool).await?;
        report.fact("cores", available_parallelism().map_or(Value::Null, |cores| cores.get().into()));
        report.fact("cpu", fact_of("/proc/cpuinfo", "model name"));
        report.fact("memory", fact_of("/proc/meminfo", "MemTotal"));
        report.fact("build", if cfg!(debug_assertions) { "debug: numbers mean nothing" } else { "release" });
        report.fact("server", server);
        Ok(report)
    }

    /// Adds one circumstance of the measurement.
    pub(crate) fn fact(&mut self, name: &'static str, value: impl Into<Value>) {
        self.facts.push((name, value.into()));
    }

    /// Adds a row to a table, which the first row makes; every row has the same columns in the same order.
    pub(crate) fn row(
        &mut self,
        table: &'static str,
        cells: impl IntoIterator<Item = (&'static str, Value)>,
    ) {
        let (columns, row) = cells.into_iter().unzip();
        match self.tables.iter_mut().find(|known| known.name == table) {
            Some(known) => {
                assert_eq!(known.columns, columns, "the rows of `{table}` differ in their columns");
                known.rows.push(row);
            }
            None => self.tables.push(Table { name: table, columns, rows: vec![row] }),
        }
    }

    /// Adds one of the numbers that the command is run for; in JSON it is a key of the object itself.
    pub(crate) fn figure(&mut self, name: &'static str, value: impl Into<Value>) {
        self.figures.push((name, value.into()));
    }

    /// Prints the report and, if wanted, the same as JSON in a last line of its own.
    pub(crate) fn print(&self, with_json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        write!(out, "{}", self.text())?;
        if with_json {
            writeln!(out, "{}", self.json())?;
        }
        out.flush()
    }

    fn text(&self) -> String {
        let facts = self.facts.iter().map(|(name, value)| format!("{name}: {}\n", shown(value)));
        let tables = self.tables.iter().map(Table::text);
        let figures = self.figures.iter().filter(|(_, value)| !value.is_array());
        let figures: Vec<_> = figures.map(|(name, value)| format!("{name}: {}\n", shown(value))).collect();
        let gap = if figures.is_empty() { "" } else { "\n" };
        facts.chain(tables).chain([gap.to_owned()]).chain(figures).collect()
    }

    fn json(&self) -> Value {
        let facts: Map<_, _> =
            self.facts.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let tables: Map<_, _> =
            self.tables.iter().map(|table| (table.name.to_owned(), table.json())).collect();
        let mut object = json!({ "command": self.command, "facts": facts, "tables": tables });
        for (name, value) in &self.figures {
            object[name] = value.clone();
        }
        object
    }
}

impl Table {
    /// The name, then the columns: words to the left, numbers to the right.
    fn text(&self) -> String {
        let header: Vec<String> = self.columns.iter().map(|column| column.to_string()).collect();
        let body: Vec<Vec<String>> = self.rows.iter().map(|row| row.iter().map(shown).collect()).collect();
        let lines: Vec<&Vec<String>> = [&header].into_iter().chain(&body).collect();
        let mut text = format!("\n{}\n", self.name);
        for line in &lines {
            let cells = line.iter().enumerate().map(|(column, cell)| {
                let width = lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
                if self.rows[0][column].is_string() {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            text += &format!("  {}", cells.collect::<Vec<_>>().join("  "));
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }

    fn json(&self) -> Value {
        let object = |row: &Vec<Value>| -> Value {
            self.columns.iter().map(|column| column.to_string()).zip(row.iter().cloned()).collect()
        };
        self.rows.iter().map(object).collect()
    }
}

/// Tells people how far a long measurement is.
#[expect(clippy::print_stderr, reason = "this is a program for a terminal")]
pub(crate) fn progress(text: &str) {
    eprintln!("{text}");
}

/// What a file of the system says about this machine, where there is such a file.
fn fact_of(file: &str, name: &str) -> Value {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
    line.map_or(Value::Null, |(_, value)| value.trim().into())
}

/// Three significant digits are all that a measurement is good for, but a count is shown in full.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(count), _) => grouped(&count.to_string()),
            (None, Some(measure)) if measure.abs() >= 100.0 => grouped(&format!("{measure:.0}")),
            (None, Some(measure)) if measure.abs() >= 10.0 => format!("{measure:.1}"),
            (None, Some(measure)) if measure.abs() >= 1.0 => format!("{measure:.2}"),
            _ => format!("{:.3}", number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Separates thousands: `1234567` becomes `1,234,567`.
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let mut text = sign.to_owned();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report =
            Report { command: "drain", facts: Vec::new(), tables: Vec::new(), figures: Vec::new() };
        report.fact("cores", 2);
        report.row("rates", [("layout", "wide".into()), ("rows/s", 45_678.9.into())]);
        report.row("rates", [("layout", "narrow".into()), ("rows/s", 7.25.into())]);
        report.figure("ratio_to_ceiling", 0.5);
        report.figure("runs", vec![1.0, 2.0]);
        report
    }

    #[test]
    fn people_get_an_aligned_table() {
        let expected = "cores: 2\n\nrates\n  layout  rows/s\n  wide    45,679\n  narrow    7.25\n\nratio_to_ceiling: 0.500\n";
        assert_eq!(report().text(), expected);
    }

    #[test]
    fn programs_get_every_digit() {
        let expected = json!({
            "command": "drain",
            "facts": { "cores": 2 },
            "tables": { "rates": [
                { "layout": "wide", "rows/s": 45_678.9 },
                { "layout": "narrow", "rows/s": 7.25 },
            ] },
            "ratio_to_ceiling": 0.5,
            "runs": [1.0, 2.0],
        });
        assert_eq!(report().json(), expected);
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(grouped("-1234567"), "-1,234,567");
        assert_eq!(grouped("999"), "999");
        assert_eq!(shown(&json!(1000)), "1,000");
    }
}
