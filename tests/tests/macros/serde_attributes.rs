//! Serde's attributes act on a state as on a struct, and derives of the enum carry over to its states.

use std::collections::BTreeMap;

use gen_durable::prelude::*;
use serde::{Deserialize, Serialize};

mod as_text {
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&number.to_string())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

struct Connection;

#[durable_fsm]
#[serde(rename_all_fields = "camelCase")]
enum Import {
    #[state(next(Parse, Strict))]
    Fetch {
        source_url: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_page: Option<u32>,
        #[serde(rename = "n", alias = "count", with = "as_text")]
        number: i64,
        #[serde(skip)]
        connection: Option<Connection>,
        #[serde(flatten)]
        rest: BTreeMap<String, i64>,
    },
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    Parse { file_name: String },
    #[state(finishes)]
    #[serde(deny_unknown_fields, default)]
    Strict { some_flag: bool },
}

impl Default for Strict {
    fn default() -> Self {
        Self { some_flag: true }
    }
}

struct Steps;

impl ImportSteps for Steps {
    async fn fetch(&self, _: Fetch, cx: &mut Context<Fetch>) -> StepResult<Fetch> {
        Ok(cx.next(Parse { file_name: "a".into() }))
    }

    async fn parse(&self, _: Parse, cx: &mut Context<Parse>) -> StepResult<Parse> {
        Ok(cx.stop("nothing there"))
    }

    async fn strict(&self, _: Strict, cx: &mut Context<Strict>) -> StepResult<Strict> {
        Ok(cx.done(()))
    }
}

#[test]
fn field_attributes_act_as_on_a_struct() {
    let _ = Import::machine(Steps);
    let state = Fetch {
        source_url: "u".into(),
        last_page: None,
        number: 7,
        connection: Some(Connection),
        rest: BTreeMap::from([("x".into(), 1)]),
    };
    let text = serde_json::to_string(&state).expect("serializes");
    assert_eq!(text, r#"{"sourceUrl":"u","n":"7","x":1}"#);
    let back: Fetch =
        serde_json::from_str(r#"{"sourceUrl":"u","count":"8","lastPage":2}"#).expect("deserializes");
    assert_eq!((back.number, back.last_page, back.rest.len()), (8, Some(2), 0));
    assert!(back.connection.is_none() && back.source_url == "u");
}

#[test]
fn a_variant_overrides_the_enum() {
    let text = serde_json::to_string(&Parse { file_name: "f".into() }).expect("serializes");
    assert_eq!(text, r#"{"FILE_NAME":"f"}"#);
    let Ok(Import::Strict { some_flag }) = Import::decode("strict", "{}") else {
        panic!("the default applies")
    };
    assert!(some_flag);
    assert!(Import::decode("strict", r#"{"someFlag":false}"#).is_ok());
    let Err(error) = Import::decode("strict", r#"{"other":1}"#) else { panic!("unknown fields are denied") };
    assert!(error.contains("unknown field `other`"), "{error}");
}

/// Above the attribute, a derive is the enum's alone; below it, the states' as well.
#[derive(PartialEq)]
#[durable_fsm]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
enum OwnSerde {
    #[default]
    #[state(next(WellDone))]
    #[serde(rename = "go")]
    Start,
    #[state(finishes)]
    #[serde(alias = "fine")]
    WellDone { order: i64 },
}

struct OwnSteps;

impl OwnSerdeSteps for OwnSteps {
    async fn start(&self, s: Start, cx: &mut Context<Start>) -> StepResult<Start> {
        let _ = s.clone();
        Ok(cx.next(WellDone { order: 1 }))
    }

    async fn well_done(&self, _: WellDone, cx: &mut Context<WellDone>) -> StepResult<WellDone> {
        Ok(cx.done(()))
    }
}

#[test]
fn an_enum_may_derive_serde_for_itself() {
    let _ = OwnSerde::machine(OwnSteps);
    assert!(OwnSerde::default() == OwnSerde::Start);
    let text = serde_json::to_string(&OwnSerde::WellDone { order: 1 }).expect("serializes");
    assert_eq!(text, r#"{"state":"well-done","order":1}"#);
    assert_eq!(serde_json::to_string(&WellDone { order: 1 }).expect("serializes"), r#"{"order":1}"#);
    assert_eq!(format!("{:?}", WellDone { order: 1 }), "WellDone { order: 1 }");
    assert!(OwnSerde::decode("well_done", r#"{"order":2}"#).is_ok());
}

/// Lint levels of the enum, its variants and fields hold for what is made of them.
mod lint_levels {
    #![deny(warnings)]

    use gen_durable::prelude::*;

    #[durable_fsm]
    #[allow(dead_code)]
    #[expect(clippy::upper_case_acronyms)]
    pub(super) enum Levels {
        #[expect(non_camel_case_types, non_snake_case)]
        #[state(next(HTTP))]
        Lower_Case {
            NotSnake: i64,
        },
        HTTP,
    }
}

#[test]
fn lint_levels_carry_over() {
    assert_eq!(lint_levels::Levels::NAME, "levels");
}
