//! Parameters of a class: read from a section or a verb, and changed while a geom lives.

use std::marker::PhantomData;

use bio::Errno;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::schema_of;
use super::typed::check_limits;
use crate::class::Settings;
use crate::error::Error;

/// A struct of parameters: defaults by `#[serde(default)]`, limits and units in the schema.
pub trait ClassParams:
    Serialize + DeserializeOwned + JsonSchema + Clone + Send + Sync + 'static
{
    /// Those that stay as they are while the geom lives.
    const FIXED: &'static [&'static str] = &[];

    /// Those that can change, as they are.
    fn settings(&self) -> Settings {
        let mut all = object(self);
        all.retain(|key, _| !Self::FIXED.contains(&key.as_str()));
        all
    }

    /// Refuses numbers beyond the limits of the schema. `of` names the object.
    ///
    /// # Errors
    ///
    /// `Inval`: the key, its value and its limits.
    fn check_limits(&self, of: &str) -> Result<(), Error> {
        let schema = schema_of::<Self>();
        let fields = schema.get("properties").and_then(Value::as_object);
        check_limits(of, fields, &object(self))
    }
}

fn object(params: &impl Serialize) -> Map<String, Value> {
    let value = serde_json::to_value(params).unwrap_or_default();
    value.as_object().cloned().unwrap_or_default()
}

/// Parameters from a section or a verb, named by `of`.
///
/// # Errors
///
/// `Inval`: the key and the problem with it.
pub fn read<P: DeserializeOwned>(of: &str, value: &Value) -> Result<P, Error> {
    let nothing = Value::Object(Map::new());
    let given = if value.is_null() { &nothing } else { value };
    parse(given).map_err(|message| unreadable(of, given, &message, |rest| parse::<P>(rest).err()))
}

/// Not inlined: both places that call it would have a copy for each type.
#[inline(never)]
fn parse<P: DeserializeOwned>(value: &Value) -> Result<P, String> {
    P::deserialize(value).map_err(|e| e.to_string())
}

/// The error of parameters that `parse` refuses with `message`, with the key that is wrong.
fn unreadable(
    of: &str,
    given: &Value,
    message: &str,
    parse_error: fn(&Value) -> Option<String>,
) -> Error {
    // The bad key is the one without which the parameters are accepted, or the error is another.
    let mut keys = given.as_object().into_iter().flatten().map(|(key, _)| key);
    let bad = keys.find(|key| {
        let mut rest = given.clone();
        rest.as_object_mut().map(|all| all.remove(*key));
        parse_error(&rest).as_deref() != Some(message)
    });
    Error::inval(match bad.filter(|key| !message.contains(&format!("`{key}`"))) {
        Some(key) => format!("{of}: `{key}`: {message}"),
        None => format!("{of}: {message}"),
    })
}

/// Parameters to change; an omitted one keeps its value, and null is the default.
#[derive(Deserialize)]
#[serde(transparent, bound = "")]
pub struct Change<P> {
    given: Map<String, Value>,
    #[serde(skip)]
    of: PhantomData<fn() -> P>,
}

impl<P: ClassParams> Change<P> {
    /// `now` with the change. `of` names the changed object.
    ///
    /// # Errors
    ///
    /// `NotSup` for a fixed one; else as [`read`].
    pub fn over(&self, of: &str, now: &P) -> Result<P, Error> {
        let mut all = object(now);
        for (key, value) in &self.given {
            if P::FIXED.contains(&key.as_str()) {
                let what = format!(
                    "{of}: `{key}` is fixed while the geom lives; destroy it and create it again"
                );
                return Err(Error::new(Errno::NotSup, what));
            }
            match value {
                Value::Null => all.remove(key),
                value => all.insert(key.clone(), value.clone()),
            };
        }
        read(of, &Value::Object(all))
    }
}

impl<P> Change<P> {
    /// Whether the change gives this parameter a value.
    pub fn names(&self, key: &str) -> bool {
        self.given.contains_key(key)
    }
}

impl<P: ClassParams> JsonSchema for Change<P> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Change{}", P::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = P::json_schema(generator);
        if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            for (key, field) in fields {
                let Some(field) = field.as_object_mut() else { continue };
                // An omitted parameter keeps its value.
                if let Some(first) = field.remove("default") {
                    field.insert("x-first".to_owned(), first);
                }
                if P::FIXED.contains(&key.as_str()) {
                    field.insert("x-hidden".to_owned(), true.into());
                }
            }
        }
        schema
    }
}

/// Parameters with the keys that were given: a verb can require a choice for which the parameters
/// have a default. Null is as not given.
#[derive(Deserialize)]
#[serde(try_from = "Map<String, Value>", bound = "P: DeserializeOwned")]
pub struct Given<P> {
    /// The parameters.
    pub params: P,
    keys: Vec<String>,
}

impl<P> Given<P> {
    /// Whether this parameter was given.
    pub fn names(&self, key: &str) -> bool {
        self.keys.iter().any(|given| given == key)
    }
}

impl<P: DeserializeOwned> TryFrom<Map<String, Value>> for Given<P> {
    type Error = serde_json::Error;

    fn try_from(mut given: Map<String, Value>) -> Result<Given<P>, serde_json::Error> {
        given.retain(|_, value| !value.is_null());
        let keys = given.keys().cloned().collect();
        Ok(Given { params: P::deserialize(Value::Object(given))?, keys })
    }
}

impl<P: JsonSchema> JsonSchema for Given<P> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        P::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        P::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    struct Pace {
        #[schemars(range(max = 90))]
        rate: u8,
        word: Option<String>,
        size: u64,
    }

    impl Default for Pace {
        fn default() -> Pace {
            Pace { rate: 5, word: None, size: 512 }
        }
    }

    impl ClassParams for Pace {
        const FIXED: &'static [&'static str] = &["size"];
    }

    /// A verb's parameters.
    #[derive(Deserialize, JsonSchema)]
    struct Configure {
        name: String,
        #[serde(flatten)]
        change: Change<Pace>,
    }

    #[test]
    fn change_keeps_settings_that_it_does_not_name() {
        let now = Pace { rate: 7, word: Some("a".into()), size: 4096 };
        let given = json!({ "name": "x", "word": null, "rate": 9 });
        let request: Configure = serde_json::from_value(given).expect("well-formed");
        assert_eq!(request.name, "x");
        assert!(request.change.names("rate") && !request.change.names("size"));
        let then = request.change.over("pace x", &now).expect("in range");
        assert_eq!(then, Pace { rate: 9, word: None, size: 4096 });
        let fields = schema_of::<Configure>()["properties"].clone();
        let keys: Vec<&String> = fields.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["name", "rate", "size", "word"]);
        assert_eq!(fields["size"]["x-hidden"], true);
        assert_eq!((&fields["rate"]["x-first"], fields["rate"].get("default")), (&json!(5), None));
        let fixed: Configure =
            serde_json::from_value(json!({ "name": "x", "size": 8 })).expect("well-formed");
        let message = fixed.change.over("pace x", &now).expect_err("it is fixed").message;
        assert!(message.starts_with("pace x: `size` is fixed"), "{message}");
        let settings = now.settings();
        assert_eq!(settings.keys().collect::<Vec<_>>(), ["rate", "word"]);
    }

    /// A verb that distinguishes given parameters from defaults.
    #[derive(Deserialize, JsonSchema)]
    struct Create {
        name: String,
        #[serde(flatten)]
        given: Given<Pace>,
    }

    #[test]
    fn given_parameters_are_distinguished_from_defaults() {
        let request = json!({ "name": "x", "rate": 5, "size": null });
        let Create { name, given } = serde_json::from_value(request).expect("well-formed");
        assert_eq!((name.as_str(), &given.params), ("x", &Pace::default()));
        assert!(given.names("rate") && !given.names("size") && !given.names("name"));
        let fields = schema_of::<Create>()["properties"].clone();
        assert_eq!(fields["rate"]["default"], 5);
        let wrong = json!({ "name": "x", "rate": 900 });
        assert!(serde_json::from_value::<Create>(wrong).is_err());
    }

    #[test]
    fn refusal_names_the_wrong_key() {
        let wrong = |value: Value| read::<Pace>("pace", &value).expect_err("refused").message;
        let message = wrong(json!({ "rate": 900, "size": 4096 }));
        assert!(message.starts_with("pace: `rate`: ") && message.contains("900"), "{message}");
        assert!(wrong(json!({ "speed": 1 })).contains("`speed`"));
        assert_eq!(read::<Pace>("pace", &Value::Null), Ok(Pace::default()));
    }

    #[test]
    fn number_beyond_its_limits_is_refused_by_its_key() {
        let pace = Pace { rate: 90, ..Pace::default() };
        assert_eq!(pace.check_limits("pace"), Ok(()));
        let refused = Pace { rate: 91, ..pace }.check_limits("pace").expect_err("refused");
        assert_eq!(refused.message, "pace: `rate` is 91: use 0 to 90");
    }
}
