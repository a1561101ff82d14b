//! The texts of all statements.

/// A statement's name and text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statement {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

macro_rules! statements {
    ($($constant:ident = $name:literal)*) => {
        $(
            pub(crate) const $constant: Statement =
                Statement { name: $name, text: include_str!(concat!("sql/", $name, ".sql")) };
        )*

        /// All of them, for tests.
        pub(crate) const ALL: &[Statement] = &[$($constant),*];
    };
}

statements! {
    ANNOUNCE = "announce"
    BEAT = "beat"
    BRING_BACK = "bring_back"
    BURY = "bury"
    CLAIM = "claim"
    COUNTS = "counts"
    DUE = "due"
    FLUSH = "flush"
    HELD = "held"
    INSERT = "insert"
    INSTALLED = "installed"
    KEEPS_BOOKS = "keeps_books"
    MACHINES = "machines"
    MARK_UNSERVED = "mark_unserved"
    PROBE = "probe"
    PROMOTE = "promote"
    RECLAIM = "reclaim"
    REGISTER_MACHINES = "register_machines"
    REGISTER_WORKER = "register_worker"
    RELEASE = "release"
    REMOVE = "remove"
    RETIRE = "retire"
    SET_ASIDE = "set_aside"
    SETTLE = "settle"
    SUSPECT_FIRST = "suspect_first"
    SWEEP_INSTANCES = "sweep_instances"
    SWEEP_WORKERS = "sweep_workers"
    WATCH = "watch"
    WORKERS = "workers"
}
