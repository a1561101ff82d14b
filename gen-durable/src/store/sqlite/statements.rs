//! The texts of all statements.

/// A statement's name and text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statement {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// One constant a file in `sql/`, or a file with an end of its own.
macro_rules! statements {
    ($($constant:ident = $name:literal $(in $file:literal with $end:literal)?;)*) => {
        $(
            pub(crate) const $constant: Statement =
                Statement { name: $name, text: statements!(@text $name $($file $end)?) };
        )*

        /// All of them, for tests.
        pub(crate) const ALL: &[Statement] = &[$($constant),*];
    };
    (@text $name:literal) => { include_str!(concat!("sql/", $name, ".sql")) };
    (@text $name:literal $file:literal $end:literal) => {
        concat!(include_str!(concat!("sql/", $file, ".sql")), $end)
    };
}

statements! {
    ANNOUNCE = "announce";
    ASK_TO_CANCEL = "ask_to_cancel";
    BEAT = "beat";
    BRING_BACK = "bring_back";
    BURY = "bury";
    CANCEL = "cancel";
    CASCADING = "cascading";
    CHILDLESS = "childless";
    CHILDREN = "children";
    CLAIM = "claim";
    CLEAR_INBOX = "clear_inbox";
    CONSUME = "consume";
    COORDINATE = "coordinate";
    COUNTS = "counts";
    DELIVER = "deliver";
    DUE = "due";
    FIND = "find";
    FLUSH = "flush";
    HELD = "held";
    HOLDERS = "holders";
    INBOX = "inbox";
    INSERT = "insert";
    INSERT_CHILDREN = "insert_children" in "insert_related" with "";
    INSERT_KEYED = "insert_keyed" in "insert_related" with "on conflict do nothing\n";
    INSTALLED = "installed";
    KEEPS_BOOKS = "keeps_books";
    KEY_TAKEN = "key_taken";
    MACHINES = "machines";
    MARK_JOINED = "mark_joined";
    MARK_UNSERVED = "mark_unserved";
    NEXT_START = "next_start";
    ORPHANS = "orphans";
    OWNED = "owned";
    PROBE = "probe";
    PROMOTE = "promote";
    RECLAIM = "reclaim";
    REGISTER_MACHINES = "register_machines";
    REGISTER_WORKER = "register_worker";
    REJOIN = "rejoin";
    RELEASE = "release";
    REMOVE = "remove";
    REMOVE_DONE = "remove_done";
    RETIRE = "retire";
    RETRY = "retry";
    SET_ASIDE = "set_aside";
    SETTLE = "settle";
    SPEND = "spend";
    STANDS = "stands";
    SUSPECT_FIRST = "suspect_first";
    SWEEP_INSTANCES = "sweep_instances";
    SWEEP_WORKERS = "sweep_workers";
    TAKE_CHILDREN = "take_children";
    TAKE_TURN = "take_turn";
    TARGETS = "targets";
    TELL_PARENTS = "tell_parents";
    TO_CANCEL = "to_cancel";
    UNJOINED = "unjoined";
    WAKE = "wake";
    WATCH = "watch";
    WORKERS = "workers";
}
