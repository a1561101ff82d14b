//! Paths of files, as they are stored and shown.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A path as JSON: text where it is text, as almost everywhere, else its bytes. So no file is lost for its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum FilePath {
    Text(String),
    Other(OsString),
}

impl From<PathBuf> for FilePath {
    fn from(path: PathBuf) -> Self {
        path.into_os_string().into_string().map_or_else(Self::Other, Self::Text)
    }
}

impl FilePath {
    pub(crate) fn as_path(&self) -> &Path {
        match self {
            Self::Text(path) => Path::new(path),
            Self::Other(path) => Path::new(path),
        }
    }

    /// What tells this path from all others.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.as_path().as_os_str().as_encoded_bytes()
    }

    /// The name's extension, which stands for what kind of file it is.
    pub(crate) fn kind(&self) -> String {
        let extension = self.as_path().extension();
        extension.map_or_else(|| "(none)".into(), |extension| extension.to_string_lossy().to_lowercase())
    }

    /// For people.
    pub(crate) fn shown(&self) -> Cow<'_, str> {
        self.as_path().to_string_lossy()
    }
}

/// All files in a directory and below it. Links are not followed, and devices and sockets are left out.
///
/// A directory below that cannot be read is listed itself, as a file would be: the run reports why.
pub(crate) fn files_below(directory: &Path) -> io::Result<Vec<FilePath>> {
    let mut files = Vec::new();
    let mut directories = vec![fs::read_dir(directory)?];
    while let Some(entries) = directories.pop() {
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_file() {
                files.push(entry.path().into());
            } else if kind.is_dir() {
                match fs::read_dir(entry.path()) {
                    Ok(below) => directories.push(below),
                    Err(_) => files.push(entry.path().into()),
                }
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(path: PathBuf) -> FilePath {
        let json = serde_json::to_string(&FilePath::from(path)).expect("it is stored");
        serde_json::from_str(&json).expect("it is read")
    }

    #[test]
    fn a_path_of_text_is_stored_as_text() {
        assert_eq!(round_trip("/tmp/é".into()), FilePath::Text("/tmp/é".into()));
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_not_text_keeps_its_bytes() {
        use std::os::unix::ffi::OsStringExt;
        let path = PathBuf::from(OsString::from_vec(vec![b'/', 0xff]));
        assert_eq!(round_trip(path.clone()).as_path(), path);
    }
}
