//! Class of the signature scan: no geoms of its own, only the verbs `scan` and `wipe`.

use bio::Errno;
use geom::{Class, Edge, Error, GraphControl};
use serde::Deserialize;
use serde_json::{Value, json};

use super::scan::{Finding, FindingRole, InspectReport, step};
use crate::members::provider_access;
use crate::part::{self, TableContext};
use crate::probe::Sectors;
use crate::probe_io::drive;

/// Name of the class.
const NAME: &str = "inspect";

/// Rounds in which findings uncovered by clearing are cleared too; the rest is reported.
const ROUNDS: usize = 4;

/// Finds and clears what other classes, and others' tools, would claim.
pub struct InspectClass;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wipe {
    /// Clear everything.
    force: bool,
    /// Clear findings of these kinds or at these offsets.
    only: Vec<String>,
}

impl Class for InspectClass {
    fn name(&self) -> &'static str {
        NAME
    }

    fn doc(&self) -> &'static str {
        "Finds every label, table and file system on a provider, and clears them."
    }

    fn verb(
        &self,
        control: &mut GraphControl,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        match verb {
            "scan" => {
                let report = report(control, on)?;
                answer(control, on, &report, &[])
            }
            "wipe" => {
                let params: Wipe = match params {
                    Value::Null => Wipe::default(),
                    given => serde_json::from_value(given.clone())
                        .map_err(|e| Error::inval(format!("wipe: {e}")))?,
                };
                wipe(control, on, &params)
            }
            other => {
                Err(Error::inval(format!("inspect has no verb {other}; it has scan and wipe")))
            }
        }
    }
}

/// Looks at a provider.
pub(crate) fn report(control: &mut GraphControl, name: &str) -> Result<InspectReport, Error> {
    let place = place(control, name)?;
    provider_access::with_read_access(control, NAME, name, |control, edge| {
        scan(control, name, edge, place)
    })
}

/// The place of a provider among partition tables.
fn place(control: &GraphControl, name: &str) -> Result<TableContext, Error> {
    let on = provider_access::find(control, name)?;
    let attr = |name: &str| control.topology.attr(on, name);
    let text = |name: &str| match attr(name) {
        Some(bio::Attr::Text(text)) => Some(text),
        _ => None,
    };
    let int = |name: &str| match attr(name) {
        Some(bio::Attr::Int(int)) => Some(int),
        _ => None,
    };
    // A leaf is not searched for a table, but signatures in it are reported all the same.
    Ok(part::place(text, int).unwrap_or_default())
}

fn scan(
    control: &mut GraphControl,
    name: &str,
    edge: Edge,
    place: TableContext,
) -> Result<InspectReport, Error> {
    let on = provider_access::find(control, name)?;
    let (sector, media) = provider_access::sizes(control, on);
    let seen = control.run_on_core("looking at the media", move |core| {
        Box::pin(async move {
            let mut sectors = Sectors::new(sector, media);
            let read = async |offset, len| core.read(edge, offset, len).await;
            drive(&mut sectors, read, |s| step(s, &place)).await
        })
    })?;
    seen.map_err(|why| Error::new(Errno::Io, format!("{name}: {why}")))
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
        true => all.filter(|f| f.is_of_the_whole()).collect(),
        false => all.filter(|f| is_meant(&params.only, f)).collect(),
    };
    // I3.
    out.sort_by_key(|f| f.rank());
    out
}

fn wipe(control: &mut GraphControl, name: &str, params: &Wipe) -> Result<Value, Error> {
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
        let mut said = answer(control, name, &report, &offsets)?;
        let message = match first.len() {
            0 => format!("{name}: nothing to clear"),
            n => format!(
                "{name}: {n} would be cleared; nothing was cleared. Give --yes-destroy {name} to \
                 clear all of them, --only KIND or OFFSET for some"
            ),
        };
        said["message"] = message.into();
        said["would_clear"] = offsets.into();
        said["cleared"] = json!([]);
        return Ok(said);
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
    let mut said = answer(control, name, &left, &[])?;
    let all: Vec<Value> = cleared.iter().map(show).collect();
    said["message"] =
        format!("{name}: {} cleared, {} left", cleared.len(), left.findings.len()).into();
    said["cleared"] = all.into();
    Ok(said)
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
    if let Some(room) = skip.checked_add(size).and_then(|end| bytes.get_mut(skip..end)) {
        room.fill(0);
    }
    provider_access::write(control, name, edge, from, bytes)
}

/// The geoms that have a provider open, and their access counts; `None` if it is not open.
fn users(control: &GraphControl, name: &str) -> Option<String> {
    let mut all = Vec::new();
    for geom in control.topology.view(0) {
        for consumer in &geom.consumers {
            let counts = consumer.counts;
            let open = counts.r > 0 || counts.w > 0 || counts.e > 0;
            if consumer.provider.as_deref() == Some(name) && open {
                all.push(format!("{} {} ({counts})", geom.class, geom.name));
            }
        }
    }
    (!all.is_empty()).then(|| all.join(", "))
}

fn show(finding: &Finding) -> Value {
    let Finding {
        offset,
        len,
        kind,
        class,
        description: what,
        reason: why,
        role: standing,
        inside,
        shown_on,
        ..
    } = finding;
    json!({
        "offset": offset,
        "bytes": len,
        "kind": kind,
        "class": class,
        "what": what,
        "why": why,
        "standing": standing.to_string(),
        "inside": inside,
        "shown_on": shown_on,
    })
}

/// The answer for a report, with the results of the classes' tasting.
fn answer(
    control: &GraphControl,
    name: &str,
    report: &InspectReport,
    would: &[u64],
) -> Result<Value, Error> {
    let on = provider_access::find(control, name)?;
    let (sector, media) = provider_access::sizes(control, on);
    let view = control.topology.view(0);
    let seen = view.iter().flat_map(|g| &g.providers).find(|p| p.id == on);
    let verdicts: Vec<(&str, &str)> = seen
        .map(|p| p.taste_outcomes.iter().map(|(class, why)| (*class, why.as_str())).collect())
        .unwrap_or_default();
    let verdict = |f: &Finding| verdicts.iter().find(|(class, _)| *class == f.class);
    let holders: Vec<&geom::GeomView> = view
        .iter()
        .filter(|g| g.consumers.iter().any(|c| c.provider.as_deref() == Some(name)))
        .collect();
    let findings: Vec<Value> = report
        .findings
        .iter()
        .map(|f| {
            let mut said = show(f);
            // The class itself knows better than the frame of its record.
            if let Some((_, why)) = verdict(f)
                && f.role == FindingRole::Main
                && f.shown_on.is_none()
                && f.class != "label"
            {
                // A layer made by a verb has not been tasted since.
                let holder = holders.iter().find(|g| g.class == f.class);
                let made = holder.filter(|_| !why.starts_with("claimed"));
                let made = made.map(|g| format!("claimed: {} {}", g.class, g.name));
                said["why"] = made.unwrap_or_else(|| (*why).to_owned()).into();
            }
            said["would_clear"] = would.contains(&f.offset).into();
            said
        })
        .collect();
    let claimed: Vec<String> = holders.iter().map(|g| format!("{} {}", g.class, g.name)).collect();
    let verdicts: Vec<Value> =
        verdicts.iter().map(|(class, why)| json!({ "class": class, "said": why })).collect();
    let unread: Vec<Value> =
        report.unread.iter().map(|(at, len)| json!({ "offset": at, "bytes": len })).collect();
    Ok(json!({
        "provider": name,
        "media_bytes": media,
        "sector_bytes": sector,
        "findings": findings,
        "verdicts": verdicts,
        "claimed_by": claimed,
        "in_use": users(control, name),
        "unread": unread,
    }))
}
