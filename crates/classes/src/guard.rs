//! Guard against overwriting: the content of a provider, checked before a write where users' data
//! may be.
//!
//! The guard runs for verbs with [`geom::ArgKind::Consent`]. It also runs for a name, for verbs of
//! partition tables, for declared mirrors and file servers, and for devices that a file server
//! creates. It uses [`crate::inspect`], so it recognises everything that `ashlar inspect` shows.
//!
//! Invariants
//!  U1  Nothing is written to a provider that holds something known, or that cannot be read whole
//!      near its ends, unless its name was given as consent.
//!  U2  All providers of a verb are looked at before the first one is written.
//!  U3  A partition, or a table that is destroyed without force, is lost only if its name was given
//!      as consent, even if nothing is found in it.

use bio::Errno;
use geom::{Error, GraphControl};

use crate::inspect::{self, Finding, FindingRole, InspectReport};
use crate::members::provider_access;

/// Findings that an error names; further ones are counted.
const NAMED_MAX: usize = 4;

/// The requesting class: records of the same class may be written again by it.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// The class whose verb it is.
    pub class: &'a str,
    /// The geom of the verb: its own records on a returning member are ignored.
    pub geom: &'a str,
    /// `--force` was given: other records of the class may be written over.
    pub force: bool,
}

/// Refuses with the names to type when a provider holds something.
///
/// # Errors
/// One whose [`Error::destroys`] has every provider that holds something and is not in `consent`.
pub fn check(
    control: &mut GraphControl,
    by: Requester<'_>,
    providers: &[&str],
    consent: &[String],
) -> Result<(), Error> {
    let mut lost = Vec::new();
    for name in providers {
        if consent.iter().any(|c| c == name) || is_open(control, name) {
            continue;
        }
        lost.extend(holds(control, by, name)?.map(|what| ((*name).to_owned(), what)));
    }
    refuse(lost)
}

/// The same for providers that the asking geom has open itself.
///
/// # Errors
/// As of [`check`].
pub fn check_own(
    control: &mut GraphControl,
    by: Requester<'_>,
    providers: &[String],
    consent: &[String],
) -> Result<(), Error> {
    let mut lost = Vec::new();
    for name in providers.iter().filter(|name| !consent.contains(name)) {
        let report = inspect::report(control, name)?;
        lost.extend(describe(&report, by).map(|what| (name.clone(), what)));
    }
    refuse(lost)
}

/// Refuses the loss of what a provider holds, in words, unless its name was given as consent.
///
/// # Errors
/// As of [`check`].
pub fn require_consent(name: &str, what: String, consent: &[String]) -> Result<(), Error> {
    match consent.iter().any(|given| given == name) {
        true => Ok(()),
        false => refuse(vec![(name.to_owned(), what)]),
    }
}

/// Refuses a loss: the providers, and what each of them holds.
fn refuse(lost: Vec<(String, String)>) -> Result<(), Error> {
    if lost.is_empty() {
        return Ok(());
    }
    let why: Vec<String> = lost.iter().map(|(name, what)| format!("{name} holds {what}")).collect();
    let names = lost.into_iter().map(|(name, _)| name).collect();
    Err(Error::new(Errno::Exist, why.join("; ")).destroying(names))
}

/// Whether a provider has a record of a class.
pub fn carries(control: &mut GraphControl, class: &str, name: &str) -> bool {
    let report = inspect::report(control, name);
    report.is_ok_and(|report| report.findings.iter().any(|f| f.class == class))
}

/// The content of a provider that would be lost, in words.
///
/// # Errors
/// There is no such provider, or it cannot be opened to be read.
pub fn holds(
    control: &mut GraphControl,
    by: Requester<'_>,
    name: &str,
) -> Result<Option<String>, Error> {
    let report = inspect::report(control, name)?;
    if by.force || describe(&report, by).is_some() {
        return Ok(describe(&report, by));
    }
    let (at, last) = provider_access::with_read_access(control, by.class, name, |c, edge| {
        provider_access::read_last_sector(c, name, edge)
    })?;
    Ok(found(&report, (&last, at.saturating_add(last.len() as u64)), by))
}

/// The same for a question before a plan or a step: content that cannot be read counts as data
/// (U1). Nothing can be written over a provider that is absent or exclusively in use.
pub fn held(control: &mut GraphControl, by: Requester<'_>, name: &str) -> Option<String> {
    match holds(control, by, name) {
        Ok(held) => held,
        Err(e) if matches!(e.kind, Errno::NoEnt | Errno::Perm) => None,
        Err(e) => Some(format!("something that cannot be read ({})", e.message)),
    }
}

/// The content of a medium that would be lost, in words: its report, and its last sector with the
/// byte where the medium ends.
pub fn found(
    report: &InspectReport,
    (last, end): (&[u8], u64),
    by: Requester<'_>,
) -> Option<String> {
    let words = describe(report, by);
    if words.is_some() || by.force {
        return words;
    }
    // An unknown last sector may be the end of anything. A record that may be overwritten is known,
    // and was left out above.
    let at = end.saturating_sub(last.len() as u64);
    let is_known = report.findings.iter().any(|f| f.offset.saturating_add(f.len) > at);
    let is_blank = last.iter().all(|b| *b == 0);
    (!is_blank && !is_known).then(|| "something unknown in its last sector".to_owned())
}

/// Whether the sector at an offset of a provider, or its last sector, begins with these bytes.
///
/// # Errors
/// As of [`holds`].
pub fn begins_with(
    control: &mut GraphControl,
    (class, name): (&str, &str),
    offset: Option<u64>,
    magic: &[u8],
) -> Result<bool, Error> {
    let sector = provider_access::with_read_access(control, class, name, |c, edge| match offset {
        None => provider_access::read_last_sector(c, name, edge).map(|(_, last)| last),
        Some(at) => {
            let on = provider_access::find(c, name)?;
            let (sector, _) = provider_access::sizes(c, on);
            provider_access::read(c, name, edge, at, sector as usize)
        }
    })?;
    Ok(sector.starts_with(magic))
}

/// Whether it is open for writing, or exclusively: the class reports the user, and refuses.
fn is_open(control: &GraphControl, name: &str) -> bool {
    let counts = control.topology.find(name).map(|on| control.topology.counts(on));
    counts.is_some_and(|counts| counts.w > 0 || counts.e > 0)
}

pub(crate) fn describe(report: &InspectReport, by: Requester<'_>) -> Option<String> {
    let all: Vec<&Finding> = report.findings.iter().filter(|f| counts(f, by)).collect();
    let mut words: Vec<String> = Vec::new();
    for finding in &all {
        let text = finding.description.clone();
        if !words.contains(&text) {
            words.push(text);
        }
    }
    if let Some((at, _)) = report.unread.first() {
        words.push(format!("bytes from {at} that cannot be read"));
    }
    let more = words.len().saturating_sub(NAMED_MAX);
    words.truncate(NAMED_MAX);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    (!words.is_empty()).then(|| words.join(", "))
}

/// Whether something found would be lost by a write of this class.
fn counts(finding: &Finding, by: Requester<'_>) -> bool {
    // Copies within a partition are removed with the table that has the partition.
    if !finding.is_outermost() || finding.role == FindingRole::Guard {
        return false;
    }
    // A name may be given again, a table is checked by its class, and a returning member belongs to
    // its own geom.
    let own = finding.class == by.class
        && (finding.kind == "label"
            || by.class == "part"
            || by.force && finding.class != "label"
            || is_member(finding, by));
    !own
}

/// Whether a finding is a record of a member of the asking geom.
pub fn is_member(finding: &Finding, by: Requester<'_>) -> bool {
    finding.class == by.class && finding.reason.ends_with(&format!("of {}/{}", by.class, by.geom))
}
