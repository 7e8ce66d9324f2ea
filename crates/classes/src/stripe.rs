//! stripe: RAID0, byte for byte FreeBSD's (docs/reference/geom.md 2.3).
//!
//! Strip `k` of the whole is stored on member `k mod n`, at strip `k div n` of it. The part of a
//! request on one member is one range there: the strips in between belong to the others.

use geom::{ClassParams, ClassVerb, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::members::Divisor;
use crate::members::frame::FrameError;
use crate::members::verbs::{Clear, Destroy, Dump, Relocate, Start, Stop};
use crate::span::{Piece, Span, SpanClass, SpanLabel, label::Format, pack, unpack, verbs};

pub type StripeClass = SpanClass<Stripe>;

/// See the module.
pub struct Stripe;

const FORMAT: Format = Format { magic: "GEOM::STRIPE", version: 3, since: (2, 3), strips: true };

/// Largest strip that the label's field can hold.
const STRIP_MAX: u64 = 1 << 31;

/// Parameters of a stripe.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StripeParams {
    /// Strip size in bytes: a power of two, a multiple of the sector size
    #[schemars(extend("x-short" = "s", "x-bytes" = true))]
    pub strip: u64,
}

impl Default for StripeParams {
    fn default() -> StripeParams {
        StripeParams { strip: 65536 }
    }
}

impl ClassParams for StripeParams {
    const FIXED: &'static [&'static str] = &["strip"];
}

impl Span for Stripe {
    const NAME: &'static str = "stripe";
    const DOC: &'static str = "RAID0: data in strips that alternate between providers.";
    const LEAST: usize = 2;
    const APPENDS: bool = false;
    const VERBS: &'static [ClassVerb<SpanClass<Stripe>>] = &[
        ClassVerb::of::<verbs::label::Label<Stripe>>(),
        ClassVerb::of::<verbs::create::Create<Stripe>>(),
        ClassVerb::of::<Stop>(),
        ClassVerb::of::<Destroy>(),
        ClassVerb::of::<Start>(),
        ClassVerb::of::<Clear>(),
        ClassVerb::of::<Dump>(),
        ClassVerb::of::<Relocate>(),
    ];
    const LABEL_DOC: &'static str = "Label providers and create a permanent stripe";
    const CREATE_DOC: &'static str = "Create a stripe without labels, until the daemon stops";

    type Params = StripeParams;

    fn strip(params: &StripeParams) -> u64 {
        params.strip
    }

    fn layout(strip: u64, _: &[u64]) -> String {
        format!("strips of {strip} bytes")
    }

    fn decode(sector: &[u8]) -> Result<SpanLabel, FrameError> {
        let label = unpack(&FORMAT, sector)?;
        if !label.strip.is_power_of_two() {
            let what = format!("is {}, not a power of two", label.strip);
            return Err(FrameError::Value("strip size", what));
        }
        if usize::from(label.count) < Self::LEAST {
            return Err(FrameError::Value("number of members", "is below two".into()));
        }
        Ok(label)
    }

    fn encode(label: &SpanLabel) -> Vec<u8> {
        pack(&FORMAT, label)
    }

    fn check_strip(strip: u64, sector_bytes: u64) -> Result<(), Error> {
        let sector = sector_bytes.max(1);
        if strip.is_power_of_two() && strip.is_multiple_of(sector) && strip <= STRIP_MAX {
            return Ok(());
        }
        let what = format!(
            "a strip of {strip} bytes: use a power of two that is a multiple of the sector size \
             ({sector}), at most 2 GiB"
        );
        Err(Error::inval(what))
    }

    fn media_bytes(strip: u64, members: &[u64]) -> u64 {
        let least = members.iter().min().copied().unwrap_or(0);
        let rows = least.checked_div(strip).unwrap_or(0);
        (rows * strip).saturating_mul(members.len() as u64)
    }

    fn pieces(strip: u64, members: &[u64], offset: u64, length: u64, f: &mut dyn FnMut(Piece)) {
        let n = members.len() as u64;
        if n == 0 || strip == 0 || length == 0 {
            return;
        }
        let (first, last) = (offset / strip, (offset + length - 1) / strip);
        for k in first..=last.min(first + n - 1) {
            // Its last strip within the request.
            let end = last - (last - k) % n;
            let from = if k == first { offset % strip } else { 0 };
            let to = if end == last { (offset + length - 1) % strip + 1 } else { strip };
            let start = k / n * strip + from;
            let stop = end / n * strip + to;
            f(Piece { member: (k % n) as usize, offset: start, length: stop - start });
        }
    }

    #[inline]
    fn single_piece(
        strip: Divisor,
        (_, n): (&[u64], Divisor),
        offset: u64,
        length: u64,
    ) -> Option<Piece> {
        let (k, within) = strip.split(offset);
        if length > strip.by() - within {
            return None;
        }
        let (row, member) = n.split(k);
        Some(Piece { member: member as usize, offset: row * strip.by() + within, length })
    }

    fn gather(
        strip: u64,
        members: &[u64],
        (offset, _): (u64, u64),
        piece: Piece,
        f: &mut dyn FnMut(u64, u64),
    ) {
        let n = members.len() as u64;
        let (mut at, end) = (piece.offset, piece.offset + piece.length);
        while at < end {
            let len = (strip - at % strip).min(end - at);
            let position = (at / strip * n + piece.member as u64) * strip + at % strip;
            f(position - offset, len);
            at += len;
        }
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
            strip: 65_536,
            home: "ada0".to_owned(),
            provider_bytes: 1_048_576,
        };
        let values: [(&str, &[u8]); 9] = [
            ("magic", b"GEOM::STRIPE"),
            ("version", &3u32.to_le_bytes()),
            ("name", b"s0"),
            ("id", &0x1122_3344u32.to_le_bytes()),
            ("number", &1u16.to_le_bytes()),
            ("count", &2u16.to_le_bytes()),
            ("strip size", &65_536u32.to_le_bytes()),
            ("hardcoded provider", b"ada0"),
            ("provider size", &1_048_576u64.to_le_bytes()),
        ];
        let page = FieldTable::of("### stripe and concat", "stripe", 0);
        page.assert_holds(&pack(&FORMAT, &label), &values);
    }
}
