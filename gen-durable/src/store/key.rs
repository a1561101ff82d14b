//! Correlation keys.

use crate::id::InstanceId;

/// The correlation key of an instance to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Name of its machine: keys are unique among all versions of a machine.
    pub family: &'static str,
    /// The key.
    pub key: String,
    /// For how long the key is taken.
    pub scope: KeyScope,
}

/// For how long an instance's correlation key is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KeyScope {
    /// Until the instance ends.
    #[default]
    Live,
    /// Until the instance's row is deleted after its retention.
    Row,
    /// Never: the key is an address that several instances may share.
    Address,
}

impl KeyScope {
    /// The scope as the store and people write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Row => "row",
            Self::Address => "address",
        }
    }
}

/// What became of an instance with a key that was to be inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// It is inserted.
    Created,
    /// Its key is taken by this instance.
    Exists(InstanceId),
    /// A transaction that is still open inserts the key, or ends the instance that has it: try again.
    Locked,
}
