//! Verbs of classes as calls of their own. `POST /v1/verbs/mirror.rebuild` has the parameters and
//! the answer of that verb, so that a generated client has types for both.
//!
//! Invariants
//!  A15  The call of a verb of a class by its own path is authorized, recorded and repeated as the
//!       call of `geom` for that verb: it needs no permission of its own.

use super::components::Components;
use super::openapi::{Operation, VERBS_PREFIX, camel_case, operation, params_name};
use crate::api::{Error, GeomListParams, GeomListing, GeomStatusParams, Kind, Result};
use crate::cli::ClassVerbs;
use crate::verbs::geom::GeomAnswer;
use geom::MessageAnswer;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The verb that calls those of classes.
pub(crate) const CLASS_CALL: &str = "geom";

/// Tag of the operations of verbs of classes.
pub(crate) const CLASSES_TAG: &str = "classes";

/// A verb of a class that a path names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClassCall {
    class: &'static str,
    verb: &'static str,
}

impl ClassCall {
    /// The verb of a name as `mirror.rebuild`; `None`: no class has it.
    pub(super) fn of(name: &str, classes: &[ClassVerbs]) -> Option<ClassCall> {
        let (class, verb) = name.split_once('.')?;
        let class = classes.iter().find(|known| known.name == class)?;
        let verb = class.all_verbs().find(|known| known.name == verb)?;
        Some(ClassCall { class: class.name, verb: verb.name })
    }

    /// The parameters of [`CLASS_CALL`] that call the verb with `params`.
    pub(super) fn params(&self, params: Value) -> Value {
        json!({ "class": self.class, "verb": self.verb, "value": params })
    }
}

/// The answer of a verb in an answer of [`CLASS_CALL`].
pub(super) fn own_answer(of_call: &str) -> Result<String> {
    let internal = |e| Error::new(Kind::Internal, CLASS_CALL, e);
    let call: GeomAnswer = serde_json::from_str(of_call).map_err(internal)?;
    Ok(call.answer.to_string())
}

/// Adds the operations of the verbs of classes to `paths`. Returns a reference to a schema of all
/// their answers.
pub(super) fn add_operations(
    paths: &mut Map<String, Value>,
    components: &mut Components,
    classes: &[ClassVerbs],
    error: &Value,
) -> Value {
    // Parameters and answers of verbs of many classes.
    components.add(geom::params_schema_of::<GeomStatusParams>());
    components.add(geom::params_schema_of::<GeomListParams>());
    components.add(geom::schema_of::<MessageAnswer>());
    components.add(geom::schema_of::<GeomListing>());
    let mut forms = BTreeMap::new();
    for class in classes {
        let prefix = camel_case(class.name);
        for verb in class.all_verbs() {
            let name = format!("{}.{}", class.name, verb.name);
            let params = components.add_of_class(&params_name(&name), &prefix, (verb.params)());
            let schema = (verb.answer)();
            let required = schema.get("required").and_then(Value::as_array).map_or(0, Vec::len);
            let answer_name = format!("{}Answer", camel_case(&name));
            let answer = components.add_of_class(&answer_name, &prefix, schema);
            // Generated clients take the first form that fits: those with more keys are first.
            forms.insert((Reverse(required), answer.to_string()), answer.clone());
            let (doc, detail) = (verb.doc, verb.detail);
            let of = Operation { name: &name, tag: CLASSES_TAG, doc, detail };
            let operation = operation(&of, params, answer, error);
            paths.insert(format!("{VERBS_PREFIX}{name}"), json!({ "post": operation }));
        }
    }
    let all = json!({
        "description": "Answer of a verb of a class.",
        "anyOf": forms.into_values().collect::<Vec<_>>(),
    });
    components.add_as("ClassVerbAnswer", all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: ClassVerbs = ClassVerbs { name: "plain", doc: "", verbs: &[] };

    #[test]
    fn path_of_a_class_verb_names_its_class_and_verb() {
        let call = |name| ClassCall::of(name, &[PLAIN]);
        let list = call("plain.list").expect("every class has it");
        let params = list.params(json!({ "names": ["d0"] }));
        let expected = json!({ "class": "plain", "verb": "list", "value": { "names": ["d0"] } });
        assert_eq!(params, expected);
        for name in ["plain", "list", "plain.start", "other.list", "plain.list.x"] {
            assert_eq!(call(name), None, "{name}");
        }
    }

    #[test]
    fn answer_of_a_class_verb_is_taken_from_that_of_the_general_call() {
        let answer = own_answer("{\"answer\":{\"message\":\"done\"}}").expect("an answer");
        assert_eq!(answer, "{\"message\":\"done\"}");
        assert_eq!(own_answer("{").expect_err("no JSON").kind, Kind::Internal);
    }

    #[test]
    fn operation_of_a_class_verb_has_its_own_parameters_and_answer() {
        let (mut paths, mut components) = (Map::new(), Components::default());
        let all = add_operations(&mut paths, &mut components, &[PLAIN], &json!({}));
        let reference = |name| json!({ "$ref": format!("#/components/schemas/{name}") });
        assert_eq!(all, reference("ClassVerbAnswer"));
        let post = &paths["/v1/verbs/plain.status"]["post"];
        assert_eq!(post["operationId"], "plain_status");
        assert_eq!(post["tags"], json!([CLASSES_TAG]));
        let schema = |of: &Value| of.pointer("/content/application~1json/schema").cloned();
        assert_eq!(schema(&post["requestBody"]), Some(reference("GeomStatusParams")));
        assert_eq!(schema(&post["responses"]["200"]), Some(reference("GeomListing")));
        let schemas = components.into_schemas();
        assert_eq!(schemas["ClassVerbAnswer"]["anyOf"], json!([reference("GeomListing")]));
    }
}
