//! What a file holds, found with a few kilobytes of memory however large it is.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Size and hash of a file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Print {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// Figures of a text.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) lines: u64,
    pub(crate) words: u64,
    /// In characters.
    pub(crate) longest_line: u64,
}

pub(crate) fn print(path: &Path) -> io::Result<Print> {
    let mut bytes = 0;
    let mut hash = Sha256::new();
    for_each_chunk(File::open(path)?, |chunk| {
        bytes += chunk.len() as u64;
        hash.update(chunk);
        true
    })?;
    let mut sha256 = String::with_capacity(64);
    for byte in hash.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(sha256, "{byte:02x}");
    }
    Ok(Print { bytes, sha256 })
}

/// The figures of a text file; `None` for a binary file, which is one that holds a NUL.
pub(crate) fn figures(path: &Path) -> io::Result<Option<Figures>> {
    figures_of(File::open(path)?)
}

/// Text in any encoding that extends ASCII; characters are counted as in UTF-8.
fn figures_of(content: impl Read) -> io::Result<Option<Figures>> {
    let mut figures = Figures::default();
    let mut binary = false;
    let (mut in_word, mut in_line, mut line) = (false, false, 0);
    for_each_chunk(content, |chunk| {
        for &byte in chunk {
            binary |= byte == 0;
            if !byte.is_ascii_whitespace() && !in_word {
                figures.words += 1;
            }
            in_word = !byte.is_ascii_whitespace();
            in_line = byte != b'\n';
            let continues_character = byte & 0b1100_0000 == 0b1000_0000;
            match byte {
                b'\n' => {
                    figures.lines += 1;
                    line = 0;
                }
                b'\r' => {}
                _ if continues_character => {}
                _ => line += 1,
            }
            figures.longest_line = figures.longest_line.max(line);
        }
        !binary
    })?;
    // The last line may lack its end.
    figures.lines += u64::from(in_line);
    Ok((!binary).then_some(figures))
}

/// Reads to the end, or until `work` has seen enough.
fn for_each_chunk(mut content: impl Read, mut work: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match content.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) if work(&buffer[..length]) => {}
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(content: &[u8]) -> Option<(u64, u64, u64)> {
        let figures = figures_of(content).expect("memory can be read")?;
        Some((figures.lines, figures.words, figures.longest_line))
    }

    #[test]
    fn lines_words_and_characters_are_counted() {
        assert_eq!(counted(b""), Some((0, 0, 0)));
        assert_eq!(counted(b"one two\nthree\n"), Some((2, 3, 7)));
        assert_eq!(counted(b"one\r\n\r\n end"), Some((3, 2, 4)));
        assert_eq!(counted("é\u{1f600}".as_bytes()), Some((1, 1, 2)));
    }

    #[test]
    fn other_encodings_are_text_and_nul_is_not() {
        assert_eq!(counted(b"caf\xe9 cr\xe8me\n"), Some((1, 2, 10)));
        assert_eq!(counted(b"\x7fELF\0\0"), None);
    }
}
