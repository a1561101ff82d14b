//! Durations as attributes write them: `"250ms"`, `"30s"`, `"1h 30m"`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// The duration that a text means, or what is wrong with the text.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("the duration is empty; write for example \"30s\"".into());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (digits, after) = split(rest, |char| char.is_ascii_digit());
        let (unit, after) = split(after, char::is_alphabetic);
        if digits.is_empty() || after.starts_with('.') {
            return Err(format!(
                "\"{text}\" is not a duration; write whole numbers with units, for example \"30s\" or \"1h 30m\""
            ));
        }
        let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            let problem = if unit.is_empty() {
                format!("`{digits}` has no unit")
            } else {
                format!("unknown unit `{unit}`")
            };
            return Err(format!("{problem}; the units are `ms`, `s`, `m`, `h` and `d`, for example \"30s\""));
        };
        total = digits
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(*factor))
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| format!("\"{text}\" is too long"))?;
        rest = after.trim_start();
    }
    Ok(Duration::from_millis(total))
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|char| !belongs(char)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_and_sums_of_them() {
        for (text, millis) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("1h 30m", 5_400_000),
            ("1m30s", 90_000),
            (" 0s ", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, said) in [
            ("", "empty"),
            ("soon", "is not a duration"),
            ("-1s", "is not a duration"),
            ("1.5s", "is not a duration"),
            ("1 s", "`1` has no unit"),
            ("30", "`30` has no unit"),
            ("30sec", "unknown unit `sec`"),
            ("1s,", "is not a duration"),
            ("999999999999999999d", "too long"),
            ("99999999999999999999s", "too long"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
