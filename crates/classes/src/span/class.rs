//! The class: tasting, claiming, naming by hand.

use std::any::Any;
use std::marker::PhantomData;

use bio::Errno;
use geom::{
    Claim, Class, Control, Create, Error, GeomId, Local, ProviderId, Taster, Topology, VerbSpec,
    Verdict,
};

use super::geom::SpanGeom;
use super::{Span, SpanLabel, verbs};
use crate::members::{Stopped, follow, frame, known};

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
    /// What is said of a provider without a label at its end.
    async fn behind(&self, disk: &Taster, why: String) -> Verdict {
        let Some(behind) = follow::behind(disk, verbs::placed::<S>).await else {
            return Verdict::No(why);
        };
        let (Some(stays), Ok(label)) = (behind.stays(), S::decode(&behind.label)) else {
            return behind.bring(disk, S::NAME).await;
        };
        if let Some(why) = self.refusal(&label, &disk.name, label.provider_bytes) {
            return Verdict::No(why);
        }
        let words = format!("{}; {}: {stays}", words(S::NAME, &label), behind.words());
        Verdict::Stays(words, Box::new(label))
    }

    /// Why a label that was found on a provider of so many bytes is not believed.
    fn refusal(&self, label: &SpanLabel, provider: &str, media_bytes: u64) -> Option<String> {
        let stopped = self.stopped.verdict(S::NAME, &label.name);
        stopped.or_else(|| misplaced(label, provider, media_bytes))
    }
}

impl<S: Span> Class for SpanClass<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn doc(&self) -> &'static str {
        S::DOC
    }

    fn params(&self) -> Option<serde_json::Value> {
        Some(schemars::schema_for!(S::Params).to_value())
    }

    fn verbs(&self) -> &'static [VerbSpec] {
        geom::specs(S::VERBS)
    }

    fn tastes(&self) -> bool {
        true
    }

    fn knows_ends(&self) -> bool {
        true
    }

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, Verdict> {
        Box::pin(async move {
            let label = match known::tasted(disk, "label", S::decode).await {
                Ok(label) => label,
                Err(why) => return self.behind(disk, why).await,
            };
            match self.refusal(&label, &disk.name, disk.media_bytes) {
                Some(why) if !frame::is_of_size(label.provider_bytes, disk.media_bytes) => {
                    self.behind(disk, why).await
                }
                Some(why) => Verdict::No(why),
                None => Verdict::Yes(words(S::NAME, &label), Box::new(label)),
            }
        })
    }

    fn claim(
        &self,
        topology: &mut Topology,
        on: ProviderId,
        why: &str,
        claim: Claim,
    ) -> Result<(), Error> {
        let claim: Box<dyn Any> = claim;
        let Ok(label) = claim.downcast::<SpanLabel>() else {
            return Err(Error::inval("the claim is not a label"));
        };
        SpanGeom::<S>::claim(topology, on, why, *label)
    }

    fn layout(&self, params: &serde_json::Value, bytes: &[u64]) -> Option<String> {
        let params = geom::read(S::NAME, params).ok()?;
        Some(S::layout(S::strip(&params), bytes))
    }

    fn create(&self, topology: &mut Topology, request: &Create<'_>) -> Result<GeomId, Error> {
        let strip = S::strip(&geom::read(S::NAME, request.params)?);
        SpanGeom::<S>::by_hand(topology, request.name, request.members, strip)
    }

    fn destroy(&self, topology: &mut Topology, geom: GeomId, force: bool) -> Result<(), Error> {
        let name = topology.geom_name(geom).to_owned();
        if !force && topology.geom_is_open(geom) {
            let what = format!("{name} is open; close what uses it, or use force");
            return Err(Error::new(Errno::Busy, what));
        }
        let manual = topology.with(geom, |g: &mut SpanGeom<S>, _| g.is_manual());
        if manual == Some(false) {
            self.stopped.stop(&name);
        }
        SpanGeom::<S>::take_apart(topology, geom);
        Ok(())
    }

    fn verb(
        &self,
        control: &mut Control,
        verb: &str,
        on: &str,
        params: &serde_json::Value,
    ) -> Result<serde_json::Value, Error> {
        geom::call(S::VERBS, self, control, (verb, on), params)
    }
}

/// Why a label must not be believed where it was found.
fn misplaced(label: &SpanLabel, provider: &str, media_bytes: u64) -> Option<String> {
    if !frame::is_at_home(&label.home, provider) {
        return Some(format!("its label belongs on {}, by name", label.home));
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
