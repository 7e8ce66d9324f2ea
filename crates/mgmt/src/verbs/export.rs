//! export: the running configuration as a document.

use super::entry::CommandVerb;
use crate::api::{Error, Kind, Result, SystemState};
use crate::config::secret::{self, HIDDEN_SECRET};
use crate::config::{Catalog, Config, WebhookConfig, write};
use crate::plan::{
    Action, CreatedGeoms, Step, grown_disks, inserted, members, set_params, settings,
};
use crate::service::Control;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Parameters of `export`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ExportParams {
    /// Print secrets that are written out in the configuration.
    #[serde(default)]
    pub secrets: bool,
}

/// Answer of `export`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ExportAnswer {
    /// Generation of the running configuration.
    pub generation: u64,
    /// The document, in the format that `apply` reads.
    pub document: String,
    /// The same configuration as a JSON value.
    pub config: Config,
}

impl Verb<Control> for ExportParams {
    const NAME: &'static str = "export";
    const DOC: &'static str = "Print the running configuration as ashlar.toml";
    const DETAIL: &'static str = "`plan` and `apply` accept the output. References to secrets \
        (file:PATH, credential:NAME) are printed; a secret that is written out in the \
        configuration is hidden without --secrets, and a document with a hidden secret is refused. \
        The path of the URL of a webhook is hidden too, and a document with a hidden path keeps \
        that of the running webhook of this name and server. \
        Geoms, also those that verbs made, are printed with their present members and settings. \
        Comments at the head list inserted layers and buses, and geoms that no section makes, \
        with the reason. Former names of renamed disks for NBD clients are printed as `aliases`.";
    const EXAMPLE: &'static str = "export > ashlar.toml";
    const MORE_EXAMPLES: &'static [&'static str] = &["export --secrets > ashlar.toml"];
    type Answer = ExportAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<ExportAnswer> {
        let (mut config, generation) = control.config();
        let state = control.state()?;
        let mut document = String::new();
        let created = CreatedGeoms::of(&config, &state, control.catalog());
        for layer in inserted(&state, control.catalog()) {
            let (object, why) = (&layer.object, &layer.why);
            match created.reason(object) {
                Some(reason) => document.push_str(&format!("# {object}: {why}: {reason}.\n")),
                None if created.has_section(object) => {}
                None => document.push_str(&format!("# {object}: {why}.\n")),
            }
        }
        for geom in &mut config.geom {
            if let Some(now) = members(geom, &state, control.catalog()) {
                geom.members = now;
            }
            set_params(geom, settings(geom, &state, control.catalog()).unwrap_or_default());
        }
        config.geom.extend(created.sections);
        keep_sizes(&mut config, &state);
        keep_former_names(&mut config, &state, control.catalog());
        let config = if self.secrets { config } else { without_secrets(&config)? };
        document.push_str(&write(&config));
        Ok(ExportAnswer { generation, document, config })
    }
}

impl CommandVerb<Control> for ExportParams {
    fn table(answer: &ExportAnswer) -> String {
        answer.document.clone()
    }
}

/// A disk that was made larger by hand has that size.
fn keep_sizes(config: &mut Config, state: &SystemState) {
    for larger in grown_disks(config, state) {
        let mut disks = config.disk.iter_mut();
        if let Some(disk) = disks.find(|disk| disk.name == larger.disk) {
            disk.params.insert("size".to_owned(), larger.bytes.into());
        }
    }
}

/// Names that units had are aliases of the targets that have a LUN of theirs, if clients of the
/// driver request units by name.
fn keep_former_names(config: &mut Config, state: &SystemState, catalog: &Catalog) {
    for former in &state.former_names {
        let access = config.access.iter();
        let of = access.filter(|a| a.luns.values().any(|lun| lun.provider == former.provider));
        let names: Vec<&String> = of.map(|a| &a.target).collect();
        let named = config.target.iter_mut().filter(|t| catalog.driver(&t.driver).has_unit_names);
        for target in named.filter(|t| names.contains(&&t.name)) {
            let aliases = target.params.entry("aliases").or_insert_with(|| json!({}));
            if let Some(aliases) = aliases.as_object_mut() {
                aliases.entry(former.name.clone()).or_insert_with(|| json!(former.provider));
            }
        }
    }
}

/// The configuration without secrets that are written out, wherever a section has one.
fn without_secrets(config: &Config) -> Result<Config> {
    let wrong = |e: serde_json::Error| Error::new(Kind::Internal, "export", e.to_string());
    let mut config = config.clone();
    config.webhook.iter_mut().for_each(WebhookConfig::hide_path);
    let mut value = serde_json::to_value(config).map_err(wrong)?;
    hide_secrets(&mut value);
    Config::deserialize(&value).map_err(wrong)
}

/// Steps as an answer shows them: as [`without_secrets`], on both sides of a change.
pub(super) fn steps_without_secrets(steps: Vec<Step>) -> Result<Vec<Step>> {
    let wrong = |e: serde_json::Error| Error::new(Kind::Internal, "plan", e.to_string());
    let one = |mut step: Step| -> Result<Step> {
        for action in [&mut step.action, &mut step.inverse] {
            if let Action::Webhooks { from, to } = action {
                from.iter_mut().chain(to).for_each(WebhookConfig::hide_path);
            }
        }
        let mut value = serde_json::to_value(&step).map_err(wrong)?;
        // Most steps have none, and stay as they are.
        if !hide_secrets(&mut value) {
            return Ok(step);
        }
        let masked = Step::deserialize(&value).map_err(wrong)?;
        Ok(Step { may_wait: step.may_wait, ..masked })
    };
    steps.into_iter().map(one).collect()
}

/// Hides secrets that are written out; whether there was any.
fn hide_secrets(value: &mut Value) -> bool {
    let mut any = false;
    match value {
        Value::Object(all) => {
            for (key, value) in all {
                match value {
                    Value::String(text) if key == "secret" && secret::is_literal(text) => {
                        *text = HIDDEN_SECRET.to_owned();
                        any = true;
                    }
                    other => any |= hide_secrets(other),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|value| any |= hide_secrets(value)),
        _ => {}
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::FormerNameState;
    use crate::config::read;
    use crate::fake::catalog;
    use crate::plan::Risk;

    #[test]
    fn export_hides_literal_secrets_but_not_references() {
        let text = "[[target]]\ndriver='iscsi'\nname='iqn.2026-11.org.example:t'\n\
            listen=['127.0.0.1:3260']\n\
            chap={user='u',secret='correct horse battery'}\n\
            mutual_chap={user='m',secret='file:/etc/ashlar/m'}\n";
        let config = read(text, "a.toml", &catalog()).expect("well-formed");
        let written = write(&without_secrets(&config).expect("it is a configuration still"));
        assert!(written.contains(HIDDEN_SECRET) && !written.contains("correct horse"), "{written}");
        assert!(written.contains("file:/etc/ashlar/m"), "{written}");
        assert!(HIDDEN_SECRET.len() < secret::CHAP_BYTES_MIN, "apply refuses it");
        assert!(write(&config).contains("correct horse"));
    }

    #[test]
    fn former_names_are_aliases_of_targets_with_unit_names() {
        let target = |name: &str, port: u16| {
            format!(
                "[[target]]\ndriver='iscsi'\nname='iqn.2026-11.test:{name}'\n\
                 listen=['127.0.0.1:{port}']\n[[access]]\ntarget='iqn.2026-11.test:{name}'\n\
                 group='g'\ninitiators=['*']\nluns={{ 0='d0' }}\n"
            )
        };
        let disk = "[[disk]]\nname='d0'\nkind='file'\npath='/a'\n";
        let text = format!("{disk}{}{}", target("a", 3260), target("b", 3261));
        let mut catalog = catalog();
        let mut config = read(&text, "a.toml", &catalog).expect("well-formed");
        config.target[1].driver = "other".to_owned();
        for driver in &mut catalog.drivers {
            driver.driver.has_unit_names = driver.name == "other";
        }
        let former = FormerNameState { name: "old".to_owned(), provider: "d0".to_owned() };
        let state = SystemState { former_names: vec![former], ..SystemState::default() };
        keep_former_names(&mut config, &state, &catalog);
        let aliases = |at: usize| config.target[at].params.get("aliases").cloned();
        assert_eq!((aliases(0), aliases(1)), (None, Some(json!({ "old": "d0" }))));
    }

    #[test]
    fn path_of_a_webhook_is_hidden_in_exports_and_steps() {
        let text = "[[webhook]]\nname='a'\nurl='https://alerts.example/T0/sesame'\n";
        let config = read(text, "a.toml", &catalog()).expect("well-formed");
        let written = write(&without_secrets(&config).expect("it is a configuration still"));
        assert!(written.contains("\"https://alerts.example:443/(hidden)\""), "{written}");
        assert!(!written.contains("sesame") && write(&config).contains("sesame"), "{written}");
        let (from, to) = (config.webhook.clone(), config.webhook);
        let step = Step::new(Action::Webhooks { from, to }, "it differs", Risk::Safe);
        let masked = steps_without_secrets(vec![step]).expect("they are steps still");
        let text = serde_json::to_string(&masked).expect("JSON");
        assert!(text.contains(HIDDEN_SECRET) && !text.contains("sesame"), "{text}");
    }

    #[test]
    fn steps_hide_secrets_on_both_sides() {
        let target = |secret: &str| {
            let text = format!(
                "[[target]]\ndriver='iscsi'\nname='iqn.2026-11.org.example:t'\n\
                 listen=['127.0.0.1:3260']\nchap={{user='u',secret='{secret}'}}\n"
            );
            let config = read(&text, "a.toml", &catalog()).expect("well-formed");
            Box::new(config.target.into_iter().next().expect("a target"))
        };
        let (from, to) = (target("correct horse"), target("battery staple"));
        let step = Step::new(Action::ModifyTarget { from, to }, "it differs", Risk::Safe);
        let masked = steps_without_secrets(vec![step]).expect("they are steps still");
        let text = serde_json::to_string(&masked).expect("JSON");
        assert!(text.contains(HIDDEN_SECRET) && text.contains("\"user\":\"u\""), "{text}");
        assert!(!text.contains("correct horse") && !text.contains("battery staple"), "{text}");
        let (from, to) = (target("file:/a"), target("file:/b"));
        let step = Step::new(Action::ModifyTarget { from, to }, "it differs", Risk::Safe);
        assert_eq!(steps_without_secrets(vec![step.clone()]), Ok(vec![step]));
    }
}
