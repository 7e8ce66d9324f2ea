//! `label`: members that are found again by themselves.

use bio::Errno;
use geom::{At, Consent, Deserialize, Error, JsonSchema, Verb};

use super::{Members, is_own, write_label};
use crate::members::verb_util::ProviderAnswer;
use crate::members::{provider_access, verb_util};
use crate::shared_args::{self, Force, Hardcode};
use crate::span::class::SpanClass;
use crate::span::{Span, SpanLabel};

/// Arguments of `label`.
#[derive(Deserialize, JsonSchema)]
#[serde(bound = "")]
#[schemars(bound = "S: Span")]
pub(crate) struct Label<S: Span> {
    /// Name of the geom, without the class
    name: String,
    members: Members<S>,
    #[serde(flatten)]
    params: S::Params,
    hardcode: Hardcode,
    // The guard has looked at it before.
    #[serde(rename = "yes_destroy")]
    _consent: Consent,
    force: Force,
}

impl<S: Span> Verb<SpanClass<S>> for Label<S> {
    const NAME: &'static str = "label";
    const DOC: &'static str = S::LABEL_DOC;
    const DETAIL: &'static str = shared_args::LABEL;
    const EXAMPLE: &'static str = "label data d0 d1";
    const WRITES: bool = true;
    type Answer = ProviderAnswer;

    fn run(self, (class, control): At<'_, SpanClass<S>>) -> Result<ProviderAnswer, Error> {
        let (name, members) = (self.name.as_str(), &self.members.names);
        verb_util::check_name(name)?;
        if control.topology.find_geom(S::NAME, name).is_some() {
            let what = format!("a {0} {name} is there already; `ashlar {0} stop {name}`", S::NAME);
            return Err(Error::new(Errno::Exist, what));
        }
        if members.len() < S::LEAST || members.len() > usize::from(u16::MAX) {
            return Err(Error::inval(format!("{} takes at least {} members", S::NAME, S::LEAST)));
        }
        let mut sector = 1;
        for (i, member) in members.iter().enumerate() {
            if members.iter().take(i).any(|m| m == member) {
                return Err(Error::inval(format!("{member} is named twice")));
            }
            let on = provider_access::find(control, member)?;
            sector = sector.max(u64::from(provider_access::sizes(control, on).0));
            verb_util::check_member(control, S::NAME, member, self.force.0, is_own::<S>)?;
        }
        let strip = S::strip(&self.params);
        S::check_strip(strip, sector)?;
        let id = verb_util::new_id(control, name);
        class.stopped.start(name);
        // Labels of another life are removed first, so that no half of two of them is ever put
        // together.
        for member in members {
            write_label::<S>(control, member, None)?;
        }
        for (number, member) in members.iter().enumerate() {
            let on = provider_access::find(control, member)?;
            let label = SpanLabel {
                name: name.to_owned(),
                id,
                number: number as u16,
                count: members.len() as u16,
                strip,
                home: if self.hardcode.0 { member.clone() } else { String::new() },
                provider_bytes: provider_access::sizes(control, on).1,
            };
            write_label::<S>(control, member, Some(&label))?;
        }
        verb_util::wait_for_provider(control, S::NAME, name, members)
    }
}
