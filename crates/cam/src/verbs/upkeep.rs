//! `modepage` and `defects`: how a disk is set, and what is wrong with its medium.

use std::fmt::Write;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};
use wire::scsi::{
    Defect, DefectFormat, Defects, ModePage, mode_fields, mode_select_list, parse_mode_pages,
};

use super::orders::Talk;
use super::raw::dump;
use super::{DEVICE, option, verb};
use crate::ccb::Command;
use crate::periph::Facts;
use crate::periph::pass::{Data, Request};

pub(super) const MODEPAGE: VerbSpec = VerbSpec {
    detail: "With -l the pages that the device has; with -m one page, a field a line, or its \
             bytes where the layout is not known here. Words behind the name are fields to change: \
             WCE=0. Only what the device lets be changed is; a value that it keeps back is said. \
             Without -S a change holds until the device is reset.",
    ..verb(
        "modepage",
        "Show or change a mode page of a SCSI device",
        &[
            DEVICE,
            ArgSpec {
                name: "fields",
                short: None,
                kind: ArgKind::Names(0),
                doc: "Fields to change: WCE=0",
            },
            option("page", 'm', ArgKind::Text, "PAGE or PAGE,SUBPAGE: 8, 0x1c,2"),
            option("list", 'l', ArgKind::Flag, "The pages that there are"),
            option(
                "values",
                'P',
                ArgKind::Choice(&["current", "changeable", "default", "saved", "0", "1", "2", "3"]),
                "Which values, by name or number; default: current",
            ),
            option("bytes", 'b', ArgKind::Flag, "Its bytes, not its fields"),
            option("save", 'S', ArgKind::Flag, "A change holds after a reset too"),
        ],
        "modepage da0 -m 8",
    )
};

pub(super) const DEFECTS: VerbSpec = VerbSpec {
    detail: "Blocks, or cylinder:head:sector or bytes from index, in the format that the disk \
             answers in. A grown list that grows is a disk to be replaced.",
    ..verb(
        "defects",
        "List the defects of a SCSI disk's medium",
        &[
            DEVICE,
            option(
                "format",
                'f',
                ArgKind::Choice(&["block", "longblock", "bfi", "phys"]),
                "Default: longblock",
            ),
            option("primary", 'P', ArgKind::Flag, "Those of the factory"),
            option("grown", 'G', ArgKind::Flag, "Those that came later; both without -P and -G"),
            option("summary", 's', ArgKind::Flag, "How many, and not which"),
            option("quiet", 'q', ArgKind::Flag, "With -s: the number alone"),
            option("offset", 'S', ArgKind::Number, "From this one of the list on"),
            option("hex", 'X', ArgKind::Flag, "In hexadecimal"),
        ],
        "defects da0 -G",
    )
};

/// Most bytes of mode data that are asked for.
const MODE_LEN: u16 = 4096;
/// Most bytes of a defect list that are asked for; what is longer is counted.
const DEFECT_LEN: u32 = 65_536;

fn number(text: &str) -> Option<u8> {
    match text.trim().strip_prefix("0x") {
        Some(hex) => u8::from_str_radix(hex, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

/// PAGE or PAGE,SUBPAGE.
fn page_of(text: &str) -> Result<(u8, u8), Error> {
    let (page, subpage) = text.split_once(',').unwrap_or((text, "0"));
    let both = number(page).filter(|p| *p < 0x3f).zip(number(subpage).filter(|s| *s < 0xff));
    both.ok_or_else(|| {
        let what = format!("page={text}: PAGE below 0x3f, or PAGE,SUBPAGE, is wanted: 8 or 0x1c,2");
        Error::inval(what)
    })
}

impl Talk<'_> {
    fn speaks_scsi(&self, what: &str) -> Result<(), Error> {
        match self.found.facts {
            Facts::Scsi(_) => Ok(()),
            _ => {
                let name = self.name();
                let what =
                    format!("{name} speaks ATA and has no {what}; `ashlar cam identify {name}`");
                Err(Error::new(Errno::NotSup, what))
            }
        }
    }

    async fn pages(&self, (page, subpage): (u8, u8), values: u8) -> Result<Vec<ModePage>, Error> {
        let [high, low] = MODE_LEN.to_be_bytes();
        // DBD: no block descriptors.
        let cdb = [0x5a, 0x08, values << 6 | page, subpage, 0, 0, 0, high, low, 0];
        let asked = Request::helped(Command::scsi(&cdb), Data::In(u32::from(MODE_LEN)));
        let asking = format!("{}: MODE SENSE", self.name());
        let data = self.send(asked).await?.good(&asking)?;
        parse_mode_pages(&data)
            .map_err(|e| Error::new(Errno::Io, format!("{asking}: the answer's {e}")))
    }

    async fn page(&self, which: (u8, u8), values: u8) -> Result<ModePage, Error> {
        let pages = self.pages(which, values).await?;
        pages.into_iter().find(|p| (p.page, p.subpage) == which).ok_or_else(|| {
            let what = format!(
                "{}: the answer has no page {:#04x},{:#04x}; `ashlar cam modepage {} -l` lists \
                 them",
                self.name(),
                which.0,
                which.1,
                self.name()
            );
            Error::new(Errno::Io, what)
        })
    }

    pub(super) async fn modepage(&self, p: &Value) -> Result<Value, Error> {
        self.speaks_scsi("mode pages")?;
        let fields: Vec<&str> =
            p["fields"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let values = match p["values"].as_str() {
            Some("changeable" | "1") => 1,
            Some("default" | "2") => 2,
            Some("saved" | "3") => 3,
            _ => 0,
        };
        match p["page"].as_str() {
            None if p["list"].as_bool().unwrap_or(false) => {
                let pages = match self.pages((0x3f, 0xff), values).await {
                    // Older devices know no subpages.
                    Err(_) => self.pages((0x3f, 0), values).await?,
                    Ok(pages) => pages,
                };
                Ok(list(&pages))
            }
            None => {
                let what = "which page? -m 8 is the caching page; -l lists all that there are";
                Err(Error::inval(what))
            }
            Some(text) if fields.is_empty() => {
                let page = self.page(page_of(text)?, values).await?;
                Ok(show(&page, p["bytes"].as_bool().unwrap_or(false)))
            }
            Some(text) if values == 0 => {
                let save = p["save"].as_bool().unwrap_or(false);
                self.change(page_of(text)?, &fields, save).await
            }
            Some(_) => {
                let what = "what is changed are the current values: leave -P out";
                Err(Error::inval(what))
            }
        }
    }

    async fn change(&self, which: (u8, u8), wanted: &[&str], save: bool) -> Result<Value, Error> {
        let refuse = |what: String| Error::inval(what);
        let mut page = self.page(which, 0).await?;
        let mask = self.page(which, 1).await?;
        let (_, fields) = mode_fields(which.0, which.1);
        let mut set = Vec::new();
        for word in wanted {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| refuse(format!("{word}: NAME=VALUE is wanted: WCE=0")))?;
            let field = fields.iter().find(|f| f.name.eq_ignore_ascii_case(name.trim()));
            let field = field.ok_or_else(|| {
                let known: Vec<&str> = fields.iter().map(|f| f.name).collect();
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                refuse(format!("{name}: no field of this page; known are: {known}"))
            })?;
            let value: u64 = value
                .trim()
                .parse()
                .map_err(|_| refuse(format!("{word}: a number up to {} is wanted", field.max())))?;
            if field.get(&mask.bytes).unwrap_or(0) != field.max()
                && field.get(&page.bytes) != Some(value)
            {
                return Err(refuse(format!(
                    "{name}: {} does not let it be changed; -P changeable shows what it does",
                    self.name()
                )));
            }
            if !field.set(&mut page.bytes, value) {
                return Err(refuse(format!("{word}: a number up to {} is wanted", field.max())));
            }
            set.push((field, value));
        }
        if save && !page.savable {
            let what = format!("{} cannot save this page; leave -S out", self.name());
            return Err(Error::new(Errno::NotSup, what));
        }
        let list = mode_select_list(&page);
        let [high, low] = u16::try_from(list.len()).unwrap_or(0).to_be_bytes();
        // PF, and SP.
        let cdb = [0x55, 0x10 | u8::from(save), 0, 0, 0, 0, 0, high, low, 0];
        let asked = Request::helped(Command::scsi(&cdb), Data::Out(list));
        self.send(asked).await?.good(&format!("{}: MODE SELECT", self.name()))?;
        let now = self.page(which, 0).await?;
        for (field, value) in set {
            let has = field.get(&now.bytes);
            if has != Some(value) {
                let what = format!(
                    "{} took the page and keeps {} at {}",
                    self.name(),
                    field.name,
                    has.unwrap_or(0)
                );
                return Err(Error::new(Errno::Io, what));
            }
        }
        Ok(show(&now, false))
    }

    pub(super) async fn defects(&self, p: &Value) -> Result<Value, Error> {
        self.speaks_scsi("defect lists that can be read")?;
        let format = match p["format"].as_str() {
            Some("block") => DefectFormat::Block,
            Some("bfi") => DefectFormat::BytesFromIndex,
            Some("phys") => DefectFormat::PhysicalSector,
            _ => DefectFormat::LongBlock,
        };
        let [primary, grown] = ["primary", "grown"].map(|k| p[k].as_bool().unwrap_or(false));
        let (primary, grown) = (primary || !grown, grown || !primary);
        let wanted = u8::from(primary) << 4 | u8::from(grown) << 3 | format as u8;
        let offset = match p["offset"].as_u64().map(u32::try_from) {
            None => 0,
            Some(Ok(offset)) => offset,
            Some(Err(_)) => {
                let what = format!("offset={}: a list has fewer than 2^32 defects", p["offset"]);
                return Err(Error::inval(what));
            }
        };
        let [[a, b, c, d], [e, f, g, h]] = [DEFECT_LEN, offset].map(u32::to_be_bytes);
        let cdb = [0xb7, wanted, e, f, g, h, a, b, c, d, 0, 0];
        let asked = Request::helped(Command::scsi(&cdb), Data::In(DEFECT_LEN));
        let asking = format!("{}: READ DEFECT DATA", self.name());
        let answer = self.send(asked).await?;
        let (twelve, data) = match answer.ended.result {
            // The short command is older, and begins at the first.
            Err(Errno::Inval) if offset == 0 => {
                let cdb = [0x37, 0, wanted, 0, 0, 0, 0, 0xff, 0xfc, 0];
                let asked = Request::helped(Command::scsi(&cdb), Data::In(0xfffc));
                (false, self.send(asked).await?.good(&asking)?)
            }
            _ => (true, answer.good(&asking)?),
        };
        let said = Defects::decode(twelve, &data)
            .map_err(|e| Error::new(Errno::Io, format!("{asking}: the answer's {e}")))?;
        Ok(defect_list(&said, p))
    }
}

fn defect_list(said: &Defects, p: &Value) -> Value {
    let [summary, quiet, hex] =
        ["summary", "quiet", "hex"].map(|k| p[k].as_bool().unwrap_or(false));
    let offset = p["offset"].as_u64().unwrap_or(0);
    let number = |n: u64| if hex { format!("{n:#x}") } else { n.to_string() };
    let one = |defect: &Defect| match *defect {
        Defect::Block(lba) => number(lba),
        Defect::Place(cylinder, head, at) => {
            // All ones: the whole track.
            let at = if at == u32::MAX { "-1".to_owned() } else { number(u64::from(at)) };
            format!("{}:{}:{at}", number(u64::from(cylinder)), number(u64::from(head)))
        }
    };
    let list: Vec<String> = said.list.iter().map(one).collect();
    let plural = if said.count == 1 { "" } else { "s" };
    let end = if summary || said.count == 0 { "." } else { ":" };
    let mut text = match summary && quiet {
        true => format!("{}\n", said.count),
        false => format!("Got {} defect{plural}{end}\n", said.count),
    };
    if !summary {
        list.iter().for_each(|line| text.extend([line, "\n"]));
        let left = said.count - said.list.len();
        if left > 0 {
            let _ =
                writeln!(text, "... and {left} more, from -S {} on", offset + list.len() as u64);
        }
    }
    json!({
        "text": text, "count": said.count, "primary": said.primary, "grown": said.grown,
        "defects": list,
    })
}

fn list(pages: &[ModePage]) -> Value {
    let mut text = String::new();
    let mut all = Vec::new();
    for page in pages {
        let (name, _) = mode_fields(page.page, page.subpage);
        let name = if name.is_empty() { "(not known here)" } else { name };
        let _ = writeln!(text, "{:#04x},{:#04x}\t{name}", page.page, page.subpage);
        all.push(json!({ "page": page.page, "subpage": page.subpage, "name": name }));
    }
    json!({ "text": text, "pages": all })
}

fn show(page: &ModePage, bytes: bool) -> Value {
    let (_, fields) = mode_fields(page.page, page.subpage);
    let mut values = serde_json::Map::new();
    let mut text = String::new();
    for field in fields {
        if let Some(value) = field.get(&page.bytes) {
            let _ = writeln!(text, "{}:  {value} ", field.name);
            values.insert(field.name.into(), json!(value));
        }
    }
    if bytes || fields.is_empty() {
        text = dump(&page.bytes);
    }
    let hex: String = page.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "text": text, "page": page.page, "subpage": page.subpage, "savable": page.savable,
        "fields": values, "data": hex,
    })
}
