//! `modepage`: mode pages of a disk.

use std::collections::BTreeMap;
use std::fmt::Write;

use bio::Errno;
use geom::{At, Deferred, Error, JsonSchema, Verb};
use serde::{Deserialize, Serialize};
use wire::scsi::{ModePage, mode_fields, mode_select_list, parse_mode_pages};

use super::Device;
use super::cmd::dump;
use super::verb_jobs::DeviceOnCore;
use crate::ccb::Command;
use crate::class::CamClass;
use crate::periph::Facts;
use crate::periph::pass::{Data, Request};

/// Show or change a mode page of a SCSI device
///
/// -l lists the pages of the device; -m shows one page, one field per line, or as bytes if its
/// layout is unknown. Arguments after the name are fields to change: WCE=0. Only fields that the
/// device allows to be changed are changed; a value that it does not accept is reported. Without -S
/// a change lasts until the device is reset.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Modepage {
    name: Device,
    /// Fields to change: WCE=0
    fields: Vec<String>,
    /// PAGE or PAGE,SUBPAGE: 8, 0x1c,2
    #[schemars(extend("x-short" = "m"))]
    page: Option<String>,
    /// List the pages of the device
    #[schemars(extend("x-short" = "l"))]
    list: bool,
    /// Kind of values, by name or number
    #[serde(default)]
    #[schemars(extend("x-short" = "P", "enum" = WORDS))]
    values: Values,
    /// Show bytes instead of fields
    #[schemars(extend("x-short" = "b"))]
    bytes: bool,
    /// Save the change, so that it survives a reset
    #[schemars(extend("x-short" = "S"))]
    save: bool,
}

/// Words for [`Values`], and the numbers of SPC.
const WORDS: [&str; 8] = ["current", "changeable", "default", "saved", "0", "1", "2", "3"];

/// Page control (PC).
#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Values {
    #[default]
    #[serde(alias = "0")]
    Current,
    #[serde(alias = "1")]
    Changeable,
    #[serde(alias = "2")]
    Default,
    #[serde(alias = "3")]
    Saved,
}

/// The mode pages of a disk, or the fields of one page.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum ModepageAnswer {
    /// The pages.
    Pages(ModePages),
    /// One page.
    Page(ModePageFields),
}

/// The mode pages of a disk.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CamModePages")]
pub(super) struct ModePages {
    /// Result for people.
    text: String,
    /// Each page.
    pages: Vec<ListedPage>,
}

/// The fields of one mode page.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CamModePageFields")]
pub(super) struct ModePageFields {
    /// Result for people.
    text: String,
    /// PAGE CODE.
    page: u8,
    /// SUBPAGE CODE; 0: the page has none.
    subpage: u8,
    /// Whether the page can be saved.
    savable: bool,
    /// Values of the known fields, by name.
    fields: BTreeMap<&'static str, u64>,
    /// Bytes of the page, in hexadecimal.
    data: String,
}

/// A mode page in a list.
#[derive(Serialize, JsonSchema)]
pub(super) struct ListedPage {
    /// PAGE CODE.
    page: u8,
    /// SUBPAGE CODE; 0: the page has none.
    subpage: u8,
    /// Name of the page.
    name: &'static str,
}

impl Verb<CamClass> for Modepage {
    const NAME: &'static str = "modepage";
    const POSITIONAL: &'static [&'static str] = &["name", "fields"];
    const EXAMPLE: &'static str = "modepage da0 -m 8";
    type Answer = Deferred<ModepageAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let on = self.name.0.clone();
        class.run_on_device(control, (Self::NAME, &on), |talk| {
            Box::pin(async move { self.answer(&talk).await })
        })
    }
}

impl Modepage {
    async fn answer(&self, talk: &DeviceOnCore<'_>) -> Result<ModepageAnswer, Error> {
        talk.require_scsi("mode pages")?;
        let fields: Vec<&str> = self.fields.iter().map(String::as_str).collect();
        let values = self.values as u8;
        match self.page.as_deref() {
            None if self.list => {
                let pages = match talk.pages((0x3f, 0xff), values).await {
                    // Older devices know no subpages.
                    Err(_) => talk.pages((0x3f, 0), values).await?,
                    Ok(pages) => pages,
                };
                Ok(list(&pages))
            }
            None => {
                let what = "no page is given: -m 8 is the caching page; -l lists all pages";
                Err(Error::inval(what))
            }
            Some(text) if fields.is_empty() => {
                let page = talk.page(page_of(text)?, values).await?;
                Ok(show(&page, self.bytes))
            }
            Some(text) if values == 0 => talk.change(page_of(text)?, &fields, self.save).await,
            Some(_) => {
                let what = "only current values can be changed; leave -P out";
                Err(Error::inval(what))
            }
        }
    }
}

/// Most bytes of mode data that are requested.
const MODE_LEN: u16 = 4096;

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

impl DeviceOnCore<'_> {
    pub(super) fn require_scsi(&self, what: &str) -> Result<(), Error> {
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
        let request = Request::with_recovery(Command::scsi(&cdb), Data::In(u32::from(MODE_LEN)));
        let asking = format!("{}: MODE SENSE", self.name());
        let data = self.send(request).await?.good(&asking)?;
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

    async fn change(
        &self,
        which: (u8, u8),
        wanted: &[&str],
        save: bool,
    ) -> Result<ModepageAnswer, Error> {
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
                    "{name}: cannot be changed on {}; -P changeable shows the fields that can",
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
        let request = Request::with_recovery(Command::scsi(&cdb), Data::Out(list));
        self.send(request).await?.good(&format!("{}: MODE SELECT", self.name()))?;
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
}

fn list(pages: &[ModePage]) -> ModepageAnswer {
    let mut text = String::new();
    let mut all = Vec::new();
    for page in pages {
        let (name, _) = mode_fields(page.page, page.subpage);
        let name = if name.is_empty() { "(not known here)" } else { name };
        let _ = writeln!(text, "{:#04x},{:#04x}\t{name}", page.page, page.subpage);
        all.push(ListedPage { page: page.page, subpage: page.subpage, name });
    }
    ModepageAnswer::Pages(ModePages { text, pages: all })
}

fn show(page: &ModePage, bytes: bool) -> ModepageAnswer {
    let (_, fields) = mode_fields(page.page, page.subpage);
    let mut values = BTreeMap::new();
    let mut text = String::new();
    for field in fields {
        if let Some(value) = field.get(&page.bytes) {
            let _ = writeln!(text, "{}:  {value} ", field.name);
            values.insert(field.name, value);
        }
    }
    if bytes || fields.is_empty() {
        text = dump(&page.bytes);
    }
    let data: String = page.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let ModePage { page, subpage, savable, .. } = *page;
    ModepageAnswer::Page(ModePageFields { text, page, subpage, savable, fields: values, data })
}
