//! `aoeconfig`: the config string of an AoE target.

use bio::Errno;
use geom::{At, Deferred, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;
use wire::aoe::{STRING_MAX, directive};

use super::DiskName;
use super::aoe::refuse;
use super::verb_jobs::DeviceOnCore;
use crate::class::CamClass;

/// Show or set an AoE target's config string
///
/// A target stores one text of at most 1024 bytes, which every machine can read. It can be set
/// while it is empty; if several machines set it at once, one succeeds, so it can name the owner of
/// a disk. --force replaces an existing string, --clear empties it.
#[derive(Deserialize, JsonSchema)]
pub(super) struct AoeConfig {
    name: DiskName,
    /// New string [default: show the present string]
    set: Option<String>,
    /// Empty the string
    clear: bool,
    /// Replace an existing string
    force: bool,
}

/// The config string of a target.
#[derive(Serialize, JsonSchema)]
pub(super) struct AoeConfigAnswer {
    /// Result for people.
    text: String,
    /// The string; bytes that are no UTF-8 are replaced.
    string: String,
    /// Bytes of the string, in hexadecimal.
    bytes: String,
}

impl Verb<CamClass> for AoeConfig {
    const NAME: &'static str = "aoeconfig";
    const EXAMPLE: &'static str = "aoeconfig ada0 --set host7";
    type Answer = Deferred<AoeConfigAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let on = self.name.0.clone();
        class.run_on_device(control, (Self::NAME, &on), |talk| {
            Box::pin(async move { self.answer(&talk).await })
        })
    }
}

impl AoeConfig {
    async fn answer(&self, talk: &DeviceOnCore<'_>) -> Result<AoeConfigAnswer, Error> {
        let on = talk.name();
        let (set, force) = (self.set.as_deref(), self.force);
        let wanted = match (set, self.clear) {
            (Some(_), true) => return Err(refuse("set or clear, not both")),
            (Some(text), false) => Some(text.as_bytes()),
            (None, true) => Some(&[][..]),
            (None, false) if force => return Err(refuse("--force needs --set or --clear")),
            (None, false) => None,
        };
        let string = match wanted {
            None => talk.string(directive::READ, &[]).await?,
            Some(text) if text.len() > STRING_MAX => {
                let what = format!("{} bytes: a string has {STRING_MAX} at most", text.len());
                return Err(refuse(what));
            }
            // Nothing can be set where something is.
            Some(text) if force || text.is_empty() => talk.string(directive::FORCE, text).await?,
            Some(text) => match talk.string(directive::SET, text).await {
                Err(e) if e.kind == Errno::Exist => {
                    let now = talk.string(directive::READ, &[]).await?;
                    let now = String::from_utf8_lossy(&now).into_owned();
                    let what = format!("{on} has the string `{now}`; --force replaces it");
                    return Err(Error::new(Errno::Exist, what));
                }
                outcome => outcome?,
            },
        };
        let text = String::from_utf8_lossy(&string).into_owned();
        if wanted.is_some() {
            talk.found.bus.mark_changed(talk.found.unit.path(), &text);
        }
        let hex: String = string.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = match string.is_empty() {
            true => format!("{on}: no string\n"),
            false => format!("{text}\n"),
        };
        Ok(AoeConfigAnswer { text: line, string: text, bytes: hex })
    }
}
