//! What the macros say about mistakes. That they work where they must is in `macros` and `strict`.
//!
//! The messages in `ui/fail` are those of one compiler, as others word and place their own part
//! differently. `TRYBUILD=overwrite cargo test --test ui` writes them anew; look at each as a stranger would.

use std::process::Command;

const GOLDEN_COMPILER: &str = "rustc 1.95.0 ";

#[test]
fn mistakes() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("rustc runs").stdout;
    let version = String::from_utf8_lossy(&version);
    if !version.starts_with(GOLDEN_COMPILER) {
        println!("skipped: the messages in ui/fail were made with {GOLDEN_COMPILER}, this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
}
