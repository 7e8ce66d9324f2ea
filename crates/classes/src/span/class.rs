//! The class: tasting, claiming, naming by hand.

use std::marker::PhantomData;

use geom::{
    ClassVerb, Create, Error, GeomId, GraphControl, Local, ProviderId, Redeclare, TasteOutcome,
    Taster, Topology, Typed,
};

use super::geom::SpanGeom;
use super::{Span, SpanLabel, verbs};
use crate::members::{Stopped, frame, relocate, verb_util};

/// A class of this kind.
pub struct SpanClass<S> {
    pub(super) stopped: Stopped,
    of: PhantomData<fn() -> S>,
}

impl<S> Default for SpanClass<S> {
    fn default() -> Self {
        SpanClass { stopped: Stopped::default(), of: PhantomData }
    }
}

impl<S: Span> SpanClass<S> {
    /// The taste outcome for a provider without a label at its end.
    async fn taste_old_end(&self, disk: &Taster, why: String) -> TasteOutcome<SpanLabel> {
        let Some(behind) = relocate::find_old_label(disk, verbs::placed::<S>).await else {
            return TasteOutcome::No(why);
        };
        let (Some(stays), Ok(label)) = (behind.fixed_reason(), S::decode(&behind.label)) else {
            return behind.move_to_end(disk, S::NAME).await;
        };
        if let Some(why) = self.refusal(&label, &disk.name, label.provider_bytes) {
            return TasteOutcome::No(why);
        }
        let words = format!("{}; {}: {stays}", words(S::NAME, &label), behind.describe());
        TasteOutcome::FormerEndKept(words, label)
    }

    /// The reason why a label on a provider of this size is not used.
    fn refusal(&self, label: &SpanLabel, provider: &str, media_bytes: u64) -> Option<String> {
        let stopped = self.stopped.refusal(S::NAME, &label.name);
        stopped.or_else(|| misplaced(label, provider, media_bytes))
    }
}

impl<S: Span> Typed for SpanClass<S> {
    const NAME: &'static str = S::NAME;
    const DOC: &'static str = S::DOC;
    const VERBS: &'static [ClassVerb<SpanClass<S>>] = S::VERBS;
    const TASTES: bool = true;
    const HAS_END_METADATA: bool = true;
    const OPENS_MEMBERS: bool = true;
    const MEMBER_LIMITS: (usize, usize) = (S::LEAST, usize::MAX);
    const MEMBER_EDITS_LAST: Option<&'static str> = match S::APPENDS {
        true => Some("and a start with a section that lacks one leaves it out"),
        false => None,
    };
    const SHOWN_AS: &'static [(&'static str, &'static str)] = &[("strip", "Stripesize")];
    type Params = S::Params;
    type Claim = SpanLabel;
    type Geom = SpanGeom<S>;

    fn stopped_geoms(&self) -> Vec<(String, String)> {
        self.stopped.all(S::NAME)
    }

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome<SpanLabel>> {
        Box::pin(async move {
            let label = match verb_util::tasted(disk, "label", S::decode).await {
                Ok(label) => label,
                Err(why) => return self.taste_old_end(disk, why).await,
            };
            match self.refusal(&label, &disk.name, disk.media_bytes) {
                Some(why) if !frame::is_of_size(label.provider_bytes, disk.media_bytes) => {
                    self.taste_old_end(disk, why).await
                }
                Some(why) => TasteOutcome::No(why),
                None => TasteOutcome::Yes(words(S::NAME, &label), label),
            }
        })
    }

    fn claim(
        &self,
        topology: &mut Topology,
        on: ProviderId,
        why: &str,
        label: SpanLabel,
    ) -> Result<(), Error> {
        SpanGeom::<S>::claim(topology, on, why, label)
    }

    fn can_replace_members(&self, from: &[String], to: &[String]) -> bool {
        from == to || S::APPENDS && to.starts_with(from)
    }

    fn check_redeclare(
        &self,
        control: &mut GraphControl,
        request: &Redeclare<'_, S::Params>,
    ) -> Result<(), Error> {
        verbs::append::foresee::<S>(control, request)
    }

    fn redeclare(
        &self,
        control: &mut GraphControl,
        request: &Redeclare<'_, S::Params>,
        consent: &[String],
    ) -> Result<(), Error> {
        verbs::append::redeclare::<S>(control, request, consent)
    }

    fn layout(&self, params: &S::Params, bytes: &[u64]) -> Option<String> {
        Some(S::layout(S::strip(params), bytes))
    }

    fn create(
        &self,
        topology: &mut Topology,
        request: &Create<'_, S::Params>,
    ) -> Result<GeomId, Error> {
        let strip = S::strip(request.params);
        SpanGeom::<S>::by_hand(topology, request.name, request.members, strip)
    }

    fn disassemble(&self, topology: &mut Topology, geom: GeomId) {
        let name = topology.geom_name(geom).to_owned();
        let manual = topology.with(geom, |g: &mut SpanGeom<S>, _| g.is_manual());
        if manual == Some(false) {
            self.stopped.stop(&name);
        }
        SpanGeom::<S>::take_apart(topology, geom);
    }
}

/// The reason why a label must not be used on this provider.
fn misplaced(label: &SpanLabel, provider: &str, media_bytes: u64) -> Option<String> {
    if !frame::is_at_home(&label.home, provider) {
        return Some(format!("its label names another provider ({})", label.home));
    }
    if !frame::is_of_size(label.provider_bytes, media_bytes) {
        let size = label.provider_bytes;
        return Some(format!(
            "its label was written for a provider of {size} bytes, and this one has {media_bytes}"
        ));
    }
    None
}

fn words(class: &str, label: &SpanLabel) -> String {
    let SpanLabel { name, id, number, count, .. } = label;
    format!("member {number} of {count} of {class}/{name} (id {id})")
}
