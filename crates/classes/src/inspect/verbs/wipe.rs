//! The `wipe` verb: clears signatures of a provider, or reports those that it would clear.

use bio::Errno;
use geom::{At, Deserialize, Edge, Error, GraphControl, JsonSchema, Verb};

use crate::inspect::answer::{InspectAnswer, SignatureFinding, answer, users};
use crate::inspect::class::{InspectClass, NAME, place, report, scan};
use crate::inspect::scan::{Finding, InspectReport};
use crate::members::provider_access;

/// Rounds in which findings uncovered by clearing are cleared too; the rest is reported.
const ROUNDS: usize = 4;

/// Erase labels, tables and file systems of a provider
///
/// Without `force` and `only` nothing is cleared, and the signatures that would be are reported.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Wipe {
    /// Provider to erase
    provider: String,
    /// Clear everything
    force: bool,
    /// Clear only signatures of this kind or at this byte offset
    only: Vec<String>,
}

impl Verb<InspectClass> for Wipe {
    const NAME: &'static str = "wipe";
    const POSITIONAL: &'static [&'static str] = &["provider"];
    const EXAMPLE: &'static str = "wipe d0 --yes-destroy d0";
    const WRITES: bool = true;
    type Answer = InspectAnswer;

    fn run(self, (_, control): At<'_, InspectClass>) -> Result<InspectAnswer, Error> {
        wipe(control, &self.provider, &self)
    }
}

/// Whether `--only` with these words means a finding.
fn is_meant(only: &[String], finding: &Finding) -> bool {
    only.iter().any(|word| {
        let number = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        };
        number == Some(finding.offset) || word == finding.kind
    })
}

fn chosen<'a>(report: &'a InspectReport, params: &Wipe) -> Vec<&'a Finding> {
    let all = report.findings.iter();
    let mut out: Vec<&Finding> = match params.only.is_empty() {
        true => all.filter(|f| f.is_outermost()).collect(),
        false => all.filter(|f| is_meant(&params.only, f)).collect(),
    };
    // I3.
    out.sort_by_key(|f| f.rank());
    out
}

fn wipe(control: &mut GraphControl, name: &str, params: &Wipe) -> Result<InspectAnswer, Error> {
    let place = place(control, name)?;
    let report = report(control, name)?;
    let first = chosen(&report, params);
    let missing =
        |word: &&String| !report.findings.iter().any(|f| is_meant(std::slice::from_ref(*word), f));
    if let Some(word) = params.only.iter().find(missing) {
        let what = format!("{name} has no {word}; `ashlar inspect {name}` shows its contents");
        return Err(Error::new(Errno::NoEnt, what));
    }
    let dry = !params.force && params.only.is_empty();
    if dry || first.is_empty() {
        let offsets: Vec<u64> = first.iter().map(|f| f.offset).collect();
        let mut inspection = answer(control, name, &report, &offsets)?;
        let message = match first.len() {
            0 => format!("{name}: nothing to clear"),
            n => format!(
                "{name}: {n} would be cleared; nothing was cleared. Give --yes-destroy {name} to \
                 clear all of them, --only KIND or OFFSET for some"
            ),
        };
        inspection.message = message;
        return Ok(inspection);
    }
    if let Some(users) = users(control, name) {
        let what = format!("{name} is in use: {users}; stop that first. Nothing was cleared");
        return Err(Error::new(Errno::Busy, what));
    }
    let agreed = |_: &mut GraphControl, _: Edge| Ok(());
    let (cleared, left) =
        provider_access::with_write_access(control, NAME, name, agreed, |control, edge| {
            let mut cleared: Vec<Finding> = Vec::new();
            let mut report = report.clone();
            for _ in 0..ROUNDS {
                let now: Vec<Finding> = chosen(&report, params).into_iter().cloned().collect();
                if now.is_empty() {
                    break;
                }
                for finding in &now {
                    clear(control, name, edge, finding)?;
                }
                cleared.extend(now);
                report = scan(control, name, edge, place)?;
            }
            Ok((cleared, report))
        })?;
    control.settle()?;
    let mut inspection = answer(control, name, &left, &[])?;
    inspection.message = format!("{name}: {} cleared, {} left", cleared.len(), left.findings.len());
    inspection.cleared = cleared.iter().map(SignatureFinding::of).collect();
    Ok(inspection)
}

/// Zeroes over one signature, flushed; the rest of its sectors stays.
fn clear(
    control: &mut GraphControl,
    name: &str,
    edge: Edge,
    finding: &Finding,
) -> Result<(), Error> {
    let on = provider_access::find(control, name)?;
    let unit = u64::from(provider_access::sizes(control, on).0).max(1);
    let from = finding.offset / unit * unit;
    let to = finding.offset.saturating_add(finding.len).next_multiple_of(unit);
    let len = usize::try_from(to.saturating_sub(from)).unwrap_or(0);
    let mut bytes = provider_access::read(control, name, edge, from, len)?;
    let skip = usize::try_from(finding.offset - from).unwrap_or(usize::MAX);
    let size = usize::try_from(finding.len).unwrap_or(0);
    if let Some(target) = skip.checked_add(size).and_then(|end| bytes.get_mut(skip..end)) {
        target.fill(0);
    }
    provider_access::write(control, name, edge, from, bytes)
}
