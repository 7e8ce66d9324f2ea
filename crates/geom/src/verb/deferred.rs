//! Answers of verbs that take time: the caller repeats the question until the answer exists, and
//! other verbs run meanwhile.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::to_json;
use crate::error::Error;

/// Progress of a verb that has no answer yet, with the next question.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Unfinished {
    /// The verb and its object.
    #[serde(default)]
    pub what: String,
    /// Bytes done.
    #[serde(default)]
    pub done: u64,
    /// Bytes in all; 0: unknown.
    #[serde(default)]
    pub total: u64,
    /// Time until the next question, ms; absent: that of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<u64>,
    /// The command that ends a run which continues without its caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goes_on: Option<String>,
    /// Parameters of the next question.
    pub again: Value,
}

impl Unfinished {
    /// The answer that the caller recognises.
    pub fn to_value(&self) -> Value {
        json!({ "unfinished": self })
    }

    /// The progress in an answer; none in a final one.
    pub fn of(answer: &Value) -> Option<Unfinished> {
        Unfinished::deserialize(answer.get("unfinished")?).ok()
    }
}

/// The answer `A`, or the progress until it exists. Users see only the former: the schema is `A`'s.
#[derive(Serialize)]
#[serde(transparent, bound = "")]
pub struct Deferred<A> {
    value: Value,
    #[serde(skip)]
    of: PhantomData<fn() -> A>,
}

impl<A: Serialize> Deferred<A> {
    /// The answer of a verb, named by `of`.
    ///
    /// # Errors
    ///
    /// `Inval`: the answer has no form in JSON.
    pub fn done(of: &str, answer: &A) -> Result<Deferred<A>, Error> {
        to_json(of, answer).map(Deferred::stored)
    }

    /// The progress of a verb.
    pub fn unfinished(progress: &Unfinished) -> Deferred<A> {
        Deferred::stored(progress.to_value())
    }

    /// An answer or progress that was stored as JSON.
    pub fn stored(value: Value) -> Deferred<A> {
        Deferred { value, of: PhantomData }
    }
}

impl<A: JsonSchema> JsonSchema for Deferred<A> {
    fn inline_schema() -> bool {
        A::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        A::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        A::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        A::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::{MessageAnswer, schema_of};

    #[test]
    fn deferred_answer_has_the_form_and_the_schema_of_the_answer() {
        let answer = MessageAnswer::new("done");
        let done = Deferred::done("x wait", &answer).expect("it has a form in JSON");
        assert_eq!(to_json("x wait", &done), Ok(json!({ "message": "done" })));
        assert_eq!(schema_of::<Deferred<MessageAnswer>>(), schema_of::<MessageAnswer>());
    }

    #[test]
    fn progress_is_recognised_and_a_final_answer_is_not() {
        let progress =
            Unfinished { what: "x wait".into(), again: json!({ "a": 1 }), ..Unfinished::default() };
        let expected = json!({ "what": "x wait", "done": 0, "total": 0, "again": { "a": 1 } });
        assert_eq!(progress.to_value(), json!({ "unfinished": expected }));
        assert_eq!(Unfinished::of(&progress.to_value()), Some(progress));
        assert_eq!(Unfinished::of(&json!({ "message": "done" })), None);
    }
}
