//! concat: providers one behind the other, byte for byte FreeBSD's (docs/reference/geom.md 2.4).

use geom::{ClassParams, ClassVerb, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::members::Divisor;
use crate::members::frame::FrameError;
use crate::members::verbs::{Clear, Destroy, Dump, Relocate, Start, Stop};
use crate::span::{Piece, Span, SpanClass, SpanLabel, label::Format, pack, unpack, verbs};

pub type ConcatClass = SpanClass<Concat>;

/// See the module.
pub struct Concat;

/// A concatenation has no parameters besides its members.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConcatParams {}

impl ClassParams for ConcatParams {}

const FORMAT: Format = Format { magic: "GEOM::CONCAT", version: 4, since: (3, 4), strips: false };

impl Span for Concat {
    const NAME: &'static str = "concat";
    const DOC: &'static str = "Concatenation of several providers.";
    const LEAST: usize = 1;
    const APPENDS: bool = true;
    const VERBS: &'static [ClassVerb<SpanClass<Concat>>] = &[
        ClassVerb::of::<verbs::label::Label<Concat>>(),
        ClassVerb::of::<verbs::create::Create<Concat>>(),
        ClassVerb::of::<verbs::append::Append>(),
        ClassVerb::of::<Stop>(),
        ClassVerb::of::<Destroy>(),
        ClassVerb::of::<Start>(),
        ClassVerb::of::<Clear>(),
        ClassVerb::of::<Dump>(),
        ClassVerb::of::<Relocate>(),
    ];
    const LABEL_DOC: &'static str = "Label providers and concatenate them permanently";
    const CREATE_DOC: &'static str = "Concatenate providers without labels, until the daemon stops";

    type Params = ConcatParams;

    fn strip(_: &ConcatParams) -> u64 {
        0
    }

    fn layout(_: u64, members: &[u64]) -> String {
        // A last member may grow.
        let all = members.iter().rev().skip(1).rev();
        let sizes: Vec<String> = all.map(u64::to_string).collect();
        match sizes.is_empty() {
            true => "one member".to_owned(),
            false => format!("members of {} bytes before the last", sizes.join(", ")),
        }
    }

    fn decode(sector: &[u8]) -> Result<SpanLabel, FrameError> {
        unpack(&FORMAT, sector)
    }

    fn encode(label: &SpanLabel) -> Vec<u8> {
        pack(&FORMAT, label)
    }

    fn check_strip(_: u64, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn media_bytes(_: u64, members: &[u64]) -> u64 {
        members.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    fn pieces(_: u64, members: &[u64], offset: u64, length: u64, f: &mut dyn FnMut(Piece)) {
        let (mut start, end) = (0u64, offset.saturating_add(length));
        for (member, bytes) in members.iter().enumerate() {
            let stop = start.saturating_add(*bytes);
            let (from, to) = (offset.max(start), end.min(stop));
            if from < to {
                f(Piece { member, offset: from - start, length: to - from });
            }
            start = stop;
        }
    }

    #[inline]
    fn single_piece(
        _: Divisor,
        (members, _): (&[u64], Divisor),
        offset: u64,
        length: u64,
    ) -> Option<Piece> {
        let mut at = offset;
        for (member, bytes) in members.iter().enumerate() {
            if at < *bytes {
                let fits = length <= *bytes - at;
                return fits.then_some(Piece { member, offset: at, length });
            }
            at -= *bytes;
        }
        None
    }

    fn gather(
        _: u64,
        members: &[u64],
        (offset, _): (u64, u64),
        piece: Piece,
        f: &mut dyn FnMut(u64, u64),
    ) {
        let before: u64 = members.iter().take(piece.member).sum();
        f(before + piece.offset - offset, piece.length);
    }
}

#[cfg(test)]
mod tests {
    use testkit::formats::FieldTable;

    use super::*;

    #[test]
    fn fields_are_where_the_page_of_formats_has_them() {
        let label = SpanLabel {
            name: "s0".to_owned(),
            id: 0x1122_3344,
            number: 1,
            count: 2,
            strip: 0,
            home: "ada0".to_owned(),
            provider_bytes: 1_048_576,
        };
        let values: [(&str, &[u8]); 8] = [
            ("magic", b"GEOM::CONCAT"),
            ("version", &4u32.to_le_bytes()),
            ("name", b"s0"),
            ("id", &0x1122_3344u32.to_le_bytes()),
            ("number", &1u16.to_le_bytes()),
            ("count", &2u16.to_le_bytes()),
            ("hardcoded provider", b"ada0"),
            ("provider size", &1_048_576u64.to_le_bytes()),
        ];
        let page = FieldTable::of("### stripe and concat", "concat", 0);
        page.assert_holds(&pack(&FORMAT, &label), &values);
    }
}
