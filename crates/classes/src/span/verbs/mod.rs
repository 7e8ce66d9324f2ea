//! The verbs, a file each; those of every class with labels are in [`crate::members::verbs`].

pub(crate) mod append;
pub(crate) mod create;
mod dump;
pub(crate) mod label;

use std::borrow::Cow;
use std::marker::PhantomData;

use geom::{Class, Error, GraphControl, MessageAnswer};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::class::SpanClass;
use super::{Span, SpanLabel};
use crate::members::frame::FrameError;
use crate::members::relocate::MovableLabel;
use crate::members::verbs::{LabelledClass, LastSectorClass};
use crate::members::{Stopped, provider_access, verb_util};

impl<S: Span> LabelledClass for SpanClass<S> {
    type Records = dump::Labels;

    fn take_apart(
        &self,
        control: &mut GraphControl,
        on: &str,
        force: bool,
    ) -> Result<MessageAnswer, Error> {
        let geom = geom::named(&control.topology, S::NAME, on)?;
        control.call(|t| self.destroy(t, geom, force))?;
        Ok(MessageAnswer::new(format!("{on} stopped")))
    }

    fn clear(control: &mut GraphControl, members: &[String]) -> Result<MessageAnswer, Error> {
        verb_util::clear(control, S::NAME, members, &format!("label of {}", S::NAME), S::decode)
    }

    fn dump(control: &mut GraphControl, members: &[String]) -> Result<dump::Labels, Error> {
        dump::dump::<S>(control, members)
    }
}

impl<S: Span> LastSectorClass for SpanClass<S> {
    const CLASS: &'static str = S::NAME;

    fn stopped(&self) -> &Stopped {
        &self.stopped
    }

    fn placed(sector: &[u8]) -> Result<MovableLabel, FrameError> {
        placed::<S>(sector)
    }
}

/// The members of one that is to be made: as many as the class needs, or more.
#[derive(Deserialize)]
#[serde(transparent, bound = "")]
pub(super) struct Members<S> {
    pub(super) names: Vec<String>,
    #[serde(skip)]
    of: PhantomData<fn() -> S>,
}

impl<S: Span> JsonSchema for Members<S> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Members".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "array",
            "items": { "type": "string" },
            "minItems": S::LEAST,
            "description": "Providers, in order",
        })
    }
}

/// A member's label, as a label that can be moved.
pub(crate) fn placed<S: Span>(sector: &[u8]) -> Result<MovableLabel, FrameError> {
    let mut label = S::decode(sector)?;
    let inner = S::APPENDS && label.number + 1 < label.count;
    Ok(MovableLabel {
        provider_bytes: label.provider_bytes,
        leading_bytes: 0,
        rewrite_alone: None,
        fixed_reason: inner.then_some("the data after an inner member of a concat would move"),
        rewrite: Box::new(move |bytes| {
            label.provider_bytes = bytes;
            S::encode(&label)
        }),
    })
}

fn is_own<S: Span>(sector: &[u8]) -> bool {
    S::decode(sector).is_ok()
}

fn write_label<S: Span>(
    control: &mut GraphControl,
    member: &str,
    label: Option<&SpanLabel>,
) -> Result<(), Error> {
    provider_access::with_write_access(
        control,
        S::NAME,
        member,
        |_, _| Ok(()),
        |control, edge| {
            let (at, old) = provider_access::read_last_sector(control, member, edge)?;
            let mut sector = label.map(S::encode).unwrap_or_default();
            sector.resize(old.len(), 0);
            provider_access::write(control, member, edge, at, sector)
        },
    )
}
