//! `append`: one more member, at the end.

use bio::Errno;
use geom::{
    At, Consent, Deserialize, Error, GeomId, GraphControl, JsonSchema, MessageAnswer, Redeclare,
    Verb,
};

use super::is_own;
use crate::guard;
use crate::members::{provider_access, verb_util};
use crate::shared_args::{Force, Hardcode};
use crate::span::class::SpanClass;
use crate::span::geom::{MemberEdge, SpanGeom};
use crate::span::{Span, SpanLabel};

/// Add a provider at the end, even while it is in use
///
/// The size grows, and layers above are notified. With labels, the label of every member is written
/// again.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Append {
    /// Name of the geom, without the class
    name: String,
    /// Provider to add
    member: String,
    hardcode: Hardcode,
    // The guard has looked at it before.
    #[serde(rename = "yes_destroy")]
    _consent: Consent,
    force: Force,
}

impl<S: Span> Verb<SpanClass<S>> for Append {
    const NAME: &'static str = "append";
    const POSITIONAL: &'static [&'static str] = &["name", "member"];
    const EXAMPLE: &'static str = "append data d2";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, SpanClass<S>>) -> Result<MessageAnswer, Error> {
        let Append { name, member, hardcode, force, .. } = self;
        append::<S>(control, &name, &member, (hardcode.0, force.0))?;
        let name = geom::bare_name(S::NAME, &name);
        Ok(MessageAnswer::new(format!("{member} appended to {}/{name}", S::NAME)))
    }
}

/// Why a section could not have these members while its geom is used: only members at the end of
/// the list may be new.
pub(in crate::span) fn foresee<S: Span>(
    control: &mut GraphControl,
    request: &Redeclare<'_, S::Params>,
) -> Result<(), Error> {
    let Redeclare { name, from, to, .. } = *request;
    if !S::APPENDS || !to.starts_with(from) {
        let what = format!("{name}: a {} in use takes members only at its end", S::NAME);
        return Err(Error::new(Errno::NotSup, what));
    }
    let geom = geom::named(&control.topology, S::NAME, name)?;
    control
        .topology
        .with(geom, |g: &mut SpanGeom<S>, t| {
            let new = to.iter().skip(from.len()).filter_map(|name| t.find(name));
            new.collect::<Vec<_>>().into_iter().try_for_each(|on| g.may_admit(t, geom, on))
        })
        .unwrap_or_else(|| Err(leaving_error(name)))
}

/// Appends the members at the end of the list that are new.
pub(in crate::span) fn redeclare<S: Span>(
    control: &mut GraphControl,
    request: &Redeclare<'_, S::Params>,
    consent: &[String],
) -> Result<(), Error> {
    foresee::<S>(control, request)?;
    let Redeclare { name: on, from, to, .. } = *request;
    let new: Vec<&str> = to.iter().skip(from.len()).map(String::as_str).collect();
    if !consent.iter().any(|name| name == on) {
        let by = guard::Requester { class: S::NAME, geom: on, force: false };
        guard::check(control, by, &new, consent)?;
    }
    new.iter().try_for_each(|member| append::<S>(control, on, member, (false, true)))
}

fn leaving_error(name: &str) -> Error {
    Error::new(Errno::NxIo, format!("{name} is being removed"))
}

fn append<S: Span>(
    control: &mut GraphControl,
    on: &str,
    member: &str,
    (hardcode, force): (bool, bool),
) -> Result<(), Error> {
    let geom = geom::named(&control.topology, S::NAME, on)?;
    let name = control.topology.geom_name(geom).to_owned();
    let new = provider_access::find(control, member)?;
    verb_util::check_member(control, S::NAME, member, force, is_own::<S>)?;
    let (sector, media) = provider_access::sizes(control, new);
    let known = control.topology.with(geom, |g: &mut SpanGeom<S>, _| (g.is_manual(), g.identity()));
    let Some((manual, identity)) = known else { return Err(leaving_error(&name)) };
    let bytes = if manual { media } else { media.saturating_sub(u64::from(sector)) };
    control.call(|t| {
        t.with(geom, |g: &mut SpanGeom<S>, t| g.admit(t, geom, new, bytes))
            .unwrap_or_else(|| Err(leaving_error(&name)))
    })?;
    let written = match manual {
        true => Ok(()),
        false => relabel::<S>(control, geom, &name, identity, hardcode),
    };
    control.call(|t| {
        t.with(geom, |g: &mut SpanGeom<S>, t| match &written {
            Ok(()) => g.append(t, geom),
            Err(_) => {
                g.drop_appending(t, geom);
                Ok(())
            }
        })
        .unwrap_or_else(|| Err(leaving_error(&name)))
    })?;
    written
}

/// Rewrites the labels of all members, beginning with that of the new one. Until the last of the
/// others is written, a power cut leaves the old whole. When one cannot be written, the old labels
/// are written back.
fn relabel<S: Span>(
    control: &mut GraphControl,
    geom: GeomId,
    name: &str,
    (id, strip): (u32, u64),
    hardcode: bool,
) -> Result<(), Error> {
    let ways =
        control.topology.with(geom, |g: &mut SpanGeom<S>, t| g.member_edges(t)).unwrap_or_default();
    let count = ways.len();
    if ways.iter().enumerate().any(|(at, way)| at != way.number) {
        return Err(Error::new(Errno::NxIo, format!("a member of {name} was removed")));
    }
    let mut before: Vec<(&MemberEdge, u64, Vec<u8>)> = Vec::new();
    for way in ways.iter().rev() {
        // At its present place, though its provider may have grown since: bytes behind it stay.
        let (sector, at) = (way.sector_bytes, way.bytes);
        let newest = way.number + 1 == count;
        let written = provider_access::read(control, &way.name, way.edge, at, sector as usize)
            .and_then(|old| {
                let home = match S::decode(&old) {
                    Ok(label) if !newest => label.home,
                    _ if newest && hardcode => way.name.clone(),
                    _ => String::new(),
                };
                before.push((way, at, old));
                let label = SpanLabel {
                    name: name.to_owned(),
                    id,
                    number: way.number as u16,
                    count: count as u16,
                    strip,
                    home,
                    provider_bytes: at + u64::from(sector),
                };
                let mut bytes = S::encode(&label);
                bytes.resize(sector as usize, 0);
                provider_access::write(control, &way.name, way.edge, at, bytes)
            });
        let Err(e) = written else { continue };
        if e.kind == Errno::TimedOut {
            // S6: nothing is written back. The labels are then as after a power cut.
            let what = format!(
                "{}; labels may have {count} members from now on, which is believed when all do: \
                 `ashlar {} append` it again when {} answers",
                e.message,
                S::NAME,
                way.name
            );
            return Err(Error::new(Errno::TimedOut, what));
        }
        for (way, at, old) in before {
            // What cannot be put back stays: one old label is enough for the old whole.
            let _ = provider_access::write(control, &way.name, way.edge, at, old);
        }
        return Err(e);
    }
    Ok(())
}
