//! geom: verbs of classes that have no command of their own.

use super::entry::CommandVerb;
use crate::api::{Error, Exit, Kind, ProgressLine, ProgressUnit, Result};
use crate::auth::is_reading_class_verb;
use crate::config::units;
use crate::plant::{Plant, Progress};
use crate::service::Control;
use geom::{At, Unfinished, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Parameters of `geom`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GeomParams {
    /// Name of the class.
    pub class: String,
    /// Name of the verb.
    pub verb: String,
    /// Parameters of the verb: KEY=VALUE. Numbers may have units.
    #[serde(default)]
    pub params: Vec<String>,
    /// Name of a provider whose contents may be lost.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
    /// Parameters as a JSON value; parameters given as KEY=VALUE are added to it.
    #[serde(default)]
    #[schemars(extend("x-hidden" = true))]
    pub value: Map<String, Value>,
}

/// Answer of `geom`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GeomAnswer {
    /// Answer of the class.
    pub answer: Value,
}

/// Verbs of classes that earlier versions called something else: former name and present name.
const FORMER_NAMES: &[(&str, &str)] = &[("follow", "relocate")];

/// The present name of a verb that may be given by a former one.
fn present_name(verb: &str) -> &str {
    FORMER_NAMES.iter().find(|(former, _)| *former == verb).map_or(verb, |(_, present)| *present)
}

/// Names that earlier versions had for a verb; they are accepted, but not shown.
pub fn former_names(verb: &str) -> impl Iterator<Item = &'static str> {
    FORMER_NAMES.iter().filter(move |(_, present)| *present == verb).map(|(former, _)| *former)
}

/// `true`, `12`, `10ms`-like texts stay texts, `4k` becomes 4096.
fn value(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match units::size(text) {
            Ok(n) => Value::from(n),
            Err(_) => Value::from(text),
        },
    }
}

impl Verb<Control> for GeomParams {
    const NAME: &'static str = "geom";
    const DOC: &'static str = "Run a verb of a class";
    const DETAIL: &'static str = "`insert` puts a layer between a provider and its users while \
        requests flow, and `remove` removes it; both work for every class that is a single layer. \
        Meanwhile the layer has the name of the provider, and the provider has the name of the \
        layer. The layer is not part of ashlar.toml and does not exist after the next start.\n\
        \n\
        If a class does not have the verb, the error lists its verbs.";
    const POSITIONAL: &'static [&'static str] = &["class", "verb", "params"];
    const EXAMPLE: &'static str = "geom nop configure name=slow delay_ms=1 read_delay_percent=100";
    const MORE_EXAMPLES: &'static [&'static str] =
        &["geom nop insert name=slow provider=d0p1", "geom nop remove name=slow"];
    type Answer = GeomAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<GeomAnswer> {
        let GeomParams { class, verb, params, yes_destroy, value: mut all } = self;
        let verb = present_name(&verb);
        if !yes_destroy.is_empty() {
            all.insert("yes_destroy".to_owned(), yes_destroy.into());
        }
        for word in &params {
            let Some((key, text)) = word.split_once('=') else {
                let why = format!("`{word}` is not KEY=VALUE");
                let next =
                    format!("The geom meant is a key too: ashlar geom {class} {verb} geom={word}.");
                return Err(Error::new(Kind::Usage, "geom", why).next(next));
            };
            all.insert(key.to_owned(), value(text));
        }
        let listed = all.remove("listed") == Some(Value::Bool(true));
        // The answer of a reading verb is a listing already.
        let listed = listed && !is_reading_class_verb(verb);
        let named = geom_names(&all);
        let all = Value::Object(all);
        let waits = all.get("wait") == Some(&Value::Bool(true));
        let most = if is_reading_class_verb(verb) { READING_WAITS_MAX } else { WAITS_MAX };
        let _slot = waits.then(|| WaitSlot::take(most)).transpose()?;
        let mut answer = carry_out(control, (&class, verb), &all, progress)?;
        let begun = answer.as_object_mut().and_then(|all| all.remove("wait_for"));
        if let Some(name) = begun {
            let query = json!({ "names": [name], "wait": true });
            let state = carry_out(control, (&class, "status"), &query, progress)?;
            answer["whole"] = state.get("whole").cloned().unwrap_or_default();
        }
        if listed {
            for name in named {
                let query = json!({ "names": [name] });
                // One that was taken apart is shown no more.
                let list = |plant: &dyn Plant| plant.verb(&class, "list", &query, progress);
                let listed = control.change_when_free(list);
                listed.into_iter().for_each(|listed| append_list(&mut answer, &listed));
            }
        }
        Ok(GeomAnswer { answer })
    }
}

impl CommandVerb<Control> for GeomParams {
    fn table(answer: &GeomAnswer) -> String {
        match &answer.answer {
            Value::Null => "done\n".to_owned(),
            Value::String(text) => format!("{text}\n"),
            Value::Object(all) => match (all.get("text"), all.get("message")) {
                (Some(Value::String(text)), _) => text.clone(),
                (_, Some(Value::String(message))) => format!("{message}\n"),
                _ => format!("{:#}\n", answer.answer),
            },
            other => format!("{other:#}\n"),
        }
    }

    fn exit(answer: &GeomAnswer) -> Exit {
        match answer.answer.get("whole") {
            Some(Value::Bool(false)) => Exit::Degraded,
            _ => Exit::Done,
        }
    }
}

/// Commands with `--wait`, at most. Each has a thread of the API until it ends, even if its client
/// disappears.
const WAITS_MAX: usize = 32;

/// Slots that verbs may take that only read: callers who may change nothing leave the others.
const READING_WAITS_MAX: usize = WAITS_MAX / 2;

/// Number of commands that wait.
static WAITS: AtomicUsize = AtomicUsize::new(0);

/// Slot of a command that waits; it is free again when this value is dropped.
struct WaitSlot;

impl WaitSlot {
    /// Takes one of the first `most` slots.
    ///
    /// # Errors
    /// [`Kind::Limit`]: all of them are taken.
    fn take(most: usize) -> Result<WaitSlot> {
        let more = |n| (n < most).then_some(n + 1);
        if WAITS.fetch_update(Relaxed, Relaxed, more).is_ok() {
            return Ok(WaitSlot);
        }
        let why = format!("{most} commands with --wait run already (the limit)");
        let next = "Repeat the command without --wait, or when another one has ended.";
        Err(Error::new(Kind::Limit, "geom", why).at("daemon").next(next))
    }
}

impl Drop for WaitSlot {
    fn drop(&mut self) {
        WAITS.fetch_sub(1, Relaxed);
    }
}

/// Carries out a verb of a class, and repeats the question until the class is done.
fn carry_out(
    control: &Control,
    (class, verb): (&str, &str),
    params: &Value,
    progress: &mut Progress<'_>,
) -> Result<Value> {
    let mut answer = control.change(|plant| plant.verb(class, verb, params, progress))?;
    while let Some((line, again, interval)) = unfinished(&answer) {
        progress(line);
        // Other commands run meanwhile.
        std::thread::sleep(interval);
        let ask = |plant: &dyn Plant| plant.verb(class, verb, &again, progress);
        answer = control.change_when_free(ask)?;
    }
    Ok(answer)
}

/// Which geoms a verb is about.
fn geom_names(params: &Map<String, Value>) -> Vec<String> {
    let one = params.get("name").into_iter();
    let all = one.chain(params.get("names").and_then(Value::as_array).into_iter().flatten());
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Appends the output of `list` to an answer.
fn append_list(answer: &mut Value, listed: &Value) {
    let Some(all) = answer.as_object_mut() else { return };
    let before = ["text", "message"].into_iter().find_map(|key| all.get(key)?.as_str());
    let mut text = before.map(|message| format!("{}\n", message.trim_end())).unwrap_or_default();
    text += listed.get("text").and_then(Value::as_str).unwrap_or_default();
    all.insert("text".into(), text.into());
    all.insert("geoms".into(), listed.get("geoms").cloned().unwrap_or_default());
}

/// Between two questions to a class that is not done yet, unless it names another time, ms.
const POLL_INTERVAL_MS: u64 = 10;

/// The progress of a class that is not done yet, the parameters of the next question and the time
/// until then.
fn unfinished(answer: &Value) -> Option<(ProgressLine, Value, Duration)> {
    let Unfinished { what, done, total, every_ms, goes_on, again } = Unfinished::of(answer)?;
    let interval = Duration::from_millis(every_ms.unwrap_or(POLL_INTERVAL_MS));
    let line = ProgressLine { what, done, total, unit: ProgressUnit::Bytes, goes_on };
    Some((line, again, interval))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_wait_are_limited() {
        let take = |most| std::iter::from_fn(move || WaitSlot::take(most).ok());
        let reads: Vec<WaitSlot> = take(READING_WAITS_MAX).collect();
        let all: Vec<WaitSlot> = reads.into_iter().chain(take(WAITS_MAX)).collect();
        assert_eq!(all.len(), WAITS_MAX, "reads leave slots for changes");
        let error = WaitSlot::take(WAITS_MAX).err().expect("no slot is left");
        assert!(error.kind == Kind::Limit && error.source.contains("32 commands"), "{error}");
        assert!(error.advice().contains("without --wait"), "{error}");
        drop(all);
        assert!(WaitSlot::take(READING_WAITS_MAX).is_ok());
    }

    #[test]
    fn incomplete_geom_after_a_wait_is_an_exit_code() {
        let exit = |answer| GeomParams::exit(&GeomAnswer { answer });
        assert_eq!(exit(json!({ "whole": false })), Exit::Degraded);
        assert_eq!(exit(json!({ "whole": true })), Exit::Done);
        assert_eq!(exit(json!({ "message": "done" })), Exit::Done);
    }

    #[test]
    fn unfinished_answer_names_the_time_until_the_next_question() {
        let unfinished = |every: Value| {
            let so_far = json!({ "done": 1, "total": 2, "every_ms": every, "again": { "a": 1 } });
            unfinished(&json!({ "unfinished": so_far })).expect("it is not done")
        };
        let (_, again, interval) = unfinished(json!(250));
        assert_eq!((interval, again), (Duration::from_millis(250), json!({ "a": 1 })));
        assert_eq!(unfinished(Value::Null).2, Duration::from_millis(POLL_INTERVAL_MS));
    }
}
