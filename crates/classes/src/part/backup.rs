//! Backup of a table as text: `backup` prints it and `restore` reads it.
//!
//! ```text
//! GPT 128                                            scheme, slots
//! # words behind # and empty lines are ignored
//! 1 freebsd-boot   40     1024 loader [bootme]       index type start size label [attributes]
//! ```
//! The text has the format of gpart, with sizes in sectors. Attributes without a word in gpart have
//! one of ours: `bit61` for a bit without a name. `data=2111` is a logical partition whose data
//! does not begin one track behind its record. A label may contain spaces; characters in it that
//! would be misread are written `\u{5b}`. JSON contains more: unique ids, the usable range,
//! attributes of the table.

use super::attributes::bits_of;
use super::ebr;
use super::error::{PartError, PartErrorKind};
use super::table::{Entry, Scheme, SchemeData, Table};
use super::types::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

pub(super) const OP: &str = "restore";

/// A backup of a table. Only `scheme`, `entries` and `partitions` are in the text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backup {
    /// `GPT`, `MBR`, `EBR`, `BSD`.
    pub scheme: String,
    /// Number of slots of the table; absent: that of the scheme.
    #[serde(default)]
    pub entries: Option<u32>,
    /// Bytes of a sector, the unit of all other numbers.
    #[serde(default)]
    pub sector_bytes: Option<u32>,
    /// Number of sectors of the original disk.
    #[serde(default)]
    pub sectors: Option<u64>,
    /// First sector that partitions may use; applies to a disk of the same size.
    #[serde(default)]
    pub first: Option<u64>,
    /// Last sector that partitions may use.
    #[serde(default)]
    pub last: Option<u64>,
    /// Unique id of the disk (GPT), or its serial number (MBR) as `0x1234abcd`.
    #[serde(default)]
    pub id: Option<String>,
    /// Attributes of the table itself.
    #[serde(default)]
    pub attributes: Vec<String>,
    /// The partitions.
    pub partitions: Vec<Saved>,
    /// The backup as text; not read.
    #[serde(default)]
    pub text: String,
}

/// A partition in a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// Index of the partition, from 1.
    pub index: u32,
    /// Alias of its type, or `!uuid`, `!number`.
    pub kind: String,
    /// First sector.
    pub start: u64,
    /// Number of sectors.
    pub count: u64,
    /// Label; empty if there is none.
    #[serde(default)]
    pub label: String,
    /// Attributes that are set.
    #[serde(default)]
    pub attributes: Vec<String>,
    /// Unique id (GPT).
    #[serde(default)]
    pub uuid: Option<String>,
    /// First data sector of a logical partition, if it is not one track after `start`.
    #[serde(default)]
    pub data: Option<u64>,
}

/// A backup as it was read, and the line numbers of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its content.
    pub backup: Backup,
    /// Lines of text: of the scheme, then of each partition. Empty for JSON.
    lines: Vec<usize>,
}

impl Table {
    /// What makes this table again.
    pub fn backup(&self) -> Backup {
        let scheme = self.scheme();
        let id = match &self.scheme_data {
            SchemeData::Gpt(gpt) => Some(gpt.disk_guid.to_string()),
            SchemeData::Mbr(mbr) => Some(format!("{:#010x}", mbr.serial())),
            SchemeData::Ebr(_) | SchemeData::Bsd(_) => None,
        };
        let mut backup = Backup {
            scheme: scheme.name().to_owned(),
            entries: Some(self.capacity),
            sector_bytes: Some(self.media.sector_size),
            sectors: Some(self.media.sectors),
            first: Some(self.first),
            last: Some(self.last),
            id,
            attributes: self.attribute_names().iter().map(|a| (*a).to_owned()).collect(),
            partitions: self.entries.iter().map(|entry| saved(scheme, entry)).collect(),
            text: String::new(),
        };
        backup.text = backup.text();
        backup
    }
}

fn saved(scheme: Scheme, entry: &Entry) -> Saved {
    // Several types may have one name.
    let name = entry.kind.to_string();
    let exact = Kind::parse(scheme, &name, OP) == Ok(entry.kind);
    let mut attributes: Vec<String> =
        entry.attribute_names().iter().map(|a| (*a).to_owned()).collect();
    if scheme == Scheme::Gpt {
        let named = |bit: u32| bits_of(entry.kind).iter().any(|known| known.bit == bit);
        let bits = (0..u64::BITS).filter(|bit| entry.attributes >> bit & 1 != 0 && !named(*bit));
        attributes.extend(bits.map(|bit| format!("bit{bit}")));
    }
    let usual = scheme != Scheme::Ebr || entry.data.checked_sub(entry.start) == Some(ebr::lead(1));
    Saved {
        index: entry.index,
        kind: if exact { name } else { entry.kind.raw() },
        start: entry.start,
        count: entry.end.saturating_sub(entry.start).saturating_add(1),
        label: entry.label(),
        attributes,
        uuid: (scheme == Scheme::Gpt).then(|| entry.guid.to_string()),
        data: (!usual).then_some(entry.data),
    }
}

impl Backup {
    /// The text: `read` answers the same scheme, slots and partitions but for the unique ids.
    pub fn text(&self) -> String {
        let digits = |n: u64| n.to_string().len();
        let slots = self.entries.map_or(String::new(), |n| n.to_string());
        let parts = &self.partitions;
        let kind = parts.iter().map(|p| p.kind.len()).max().unwrap_or(0);
        let most = parts.iter().map(|p| p.start.max(p.count)).max().unwrap_or(0);
        let wide = digits(most.max(self.last.unwrap_or(0)));
        let slot = parts.iter().map(|p| digits(p.index.into())).max().unwrap_or(0);
        let slot = slot.max(slots.len());
        let mut out = format!("{} {slots}\n", self.scheme);
        for part in parts {
            let Saved { index, kind: name, start, count, .. } = part;
            // Writing to a string cannot fail.
            let _ = write!(out, "{index:<slot$} {name:>kind$} {start:>wide$} {count:>wide$}");
            if !part.label.is_empty() {
                let _ = write!(out, " {}", escaped(&part.label));
            }
            let mut words = part.attributes.clone();
            words.extend(part.data.map(|data| format!("data={data}")));
            if !words.is_empty() {
                let _ = write!(out, " [{}]", words.join(","));
            }
            out.push('\n');
        }
        out
    }

    /// Reads text, or JSON when it begins with a brace.
    ///
    /// # Errors
    /// `BadValue` that names the line (or the place in the JSON) and the field.
    pub fn read(text: &str) -> Result<Source, PartError> {
        if !text.trim_start().starts_with('{') {
            return lines(text);
        }
        let read = serde_json::from_str(text);
        let backup = read.map_err(|e| {
            let at = format!("the JSON, {e}");
            PartError::new(PartErrorKind::BadValue, OP, at)
        })?;
        Ok(Source { backup, lines: Vec::new() })
    }
}

impl Source {
    /// The place of an entry of the list in the input, for people.
    pub(super) fn place(&self, at: usize) -> String {
        match self.lines.get(at.saturating_add(1)) {
            Some(line) => format!("line {line}"),
            None => format!("partitions[{at}]"),
        }
    }

    /// The place of the scheme in the input.
    pub(super) fn head(&self) -> String {
        self.lines.first().map_or("the head of the JSON".to_owned(), |line| format!("line {line}"))
    }
}

fn lines(text: &str) -> Result<Source, PartError> {
    let bad = |line: usize, what: String| {
        PartError::new(PartErrorKind::BadValue, OP, format!("line {line}, {what}"))
    };
    let mut all = (1..).zip(text.lines()).filter(|(_, line)| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    });
    let Some((at, head)) = all.next() else {
        return Err(bad(1, "the scheme is missing: there is nothing in it".to_owned()));
    };
    let mut words = head.split_whitespace();
    let scheme = words.next().unwrap_or("").to_owned();
    if Scheme::by_name(&scheme).is_none() {
        return Err(bad(at, format!("scheme {scheme:?}: gpt, mbr, ebr and bsd are known")));
    }
    let entries = words
        .next()
        .map(|word| word.parse().map_err(|_| bad(at, format!("number of entries {word:?}"))));
    let entries = entries.transpose()?;
    if let Some(more) = words.next() {
        return Err(bad(at, format!("{more:?} behind the number of entries")));
    }
    let mut source =
        Source { backup: Backup { scheme, entries, ..Backup::default() }, lines: vec![at] };
    for (at, line) in all {
        let part = line_of(line).map_err(|what| bad(at, what))?;
        source.backup.partitions.push(part);
        source.lines.push(at);
    }
    Ok(source)
}

/// One partition; an error names the field and its problem.
fn line_of(line: &str) -> Result<Saved, String> {
    let mut rest = line.trim();
    let mut word = |field: &str| {
        let (word, behind) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        rest = behind.trim_start();
        if word.is_empty() { Err(format!("the {field} is missing")) } else { Ok(word) }
    };
    fn number<T: std::str::FromStr>(field: &str, word: &str) -> Result<T, String> {
        word.parse().map_err(|_| format!("{field} {word:?} is no number"))
    }
    let mut part = Saved {
        index: number("index", word("index")?)?,
        kind: word("type")?.to_owned(),
        start: number("start", word("start")?)?,
        count: number("size", word("size")?)?,
        ..Saved::default()
    };
    let mut label = rest;
    // A bracket in a label is written otherwise.
    if let Some((before, list)) = rest.strip_suffix(']').and_then(|r| r.rsplit_once('[')) {
        label = before;
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.strip_prefix("data=") {
                Some(at) => part.data = Some(number("attribute data", at)?),
                None => part.attributes.push(word.to_owned()),
            }
        }
    }
    if label.contains('[') {
        return Err("attributes: the closing ] is missing".to_owned());
    }
    part.label = unescaped(label.trim());
    Ok(part)
}

/// A label that `line_of` reads as it was: no bracket, no space at its ends, no control.
fn escaped(label: &str) -> String {
    let last = label.chars().count().saturating_sub(1);
    let mut out = String::new();
    for (at, c) in label.chars().enumerate() {
        let space = c.is_whitespace() && (c != ' ' || at == 0 || at == last);
        match c {
            '\\' => out.push_str("\\\\"),
            '[' => out.push_str("\\u{5b}"),
            _ if space || c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// The inverse; a backslash before any other character denotes itself.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        out.push_str(before);
        let code = behind.strip_prefix("u{").and_then(|r| r.split_once('}'));
        let code = code
            .and_then(|(hex, r)| Some((char::from_u32(u32::from_str_radix(hex, 16).ok()?)?, r)));
        rest = match (code, behind.strip_prefix('\\')) {
            (Some((c, r)), _) => {
                out.push(c);
                r
            }
            (None, Some(r)) => {
                out.push('\\');
                r
            }
            (None, None) => {
                out.push('\\');
                behind
            }
        };
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_labels_round_trip() {
        for label in ["x", "EFI system", "a\\b", "\\u{5b}", " x ", "[x]", "a  b", "\t", "ü🦀", "#1"]
        {
            let saved =
                Saved { index: 1, kind: "efi".into(), start: 40, count: 8, ..<_>::default() };
            let saved = Saved { label: label.into(), attributes: vec!["bootme".into()], ..saved };
            let backup = Backup {
                scheme: "GPT".into(),
                entries: Some(128),
                partitions: vec![saved],
                ..Backup::default()
            };
            let read = Backup::read(&backup.text()).expect("read");
            assert_eq!(read.backup, backup, "{label:?}: {}", backup.text());
        }
    }
}
