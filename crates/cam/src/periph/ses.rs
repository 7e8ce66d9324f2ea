//! Enclosure driver (ses): the elements of enclosures, the disks in their slots, and the lights.
//!
//! Invariants
//!  E1  Pages of one generation are read together, or none. An enclosure that changes meanwhile is
//!      read again, and reported as changing when it does not settle.
//!  E2  Only the element that was meant is selected in the page that is sent.

use std::rc::Rc;
use std::sync::Arc;

use bio::Errno;
use geom::{Core, Error};
use wire::WireError;
use wire::ata::{SEP_ATTN, sep};
use wire::scsi::{
    ARRAY_DEVICE_SLOT, AdditionalElement, DEVICE_SLOT, SesConfig, SesStatus, ses_page,
    ses_supported,
};

use super::Facts;
use super::pass::{Data, Request, send};
use crate::ccb::{Command, Registers};
use crate::unit::Unit;

/// How often an enclosure is read that changes meanwhile.
const READ_TRIES: u8 = 3;
/// Longest page that is requested: the most that a bridge can send at a time.
const PAGE_LEN: u16 = 1020;
/// Of a SAS enclosure.
const PAGE_LEN_SCSI: u16 = 32_768;

/// Data that an enclosure reports.
pub struct Enclosure {
    /// Which elements there are.
    pub config: SesConfig,
    /// How each is.
    pub status: Vec<SesStatus>,
    /// The name of each element; empty where it reports none.
    pub names: Vec<String>,
    /// Which SAS device is where.
    pub places: Vec<AdditionalElement>,
}

impl Enclosure {
    /// Elements that hold a device.
    pub fn slots(&self) -> Vec<usize> {
        let holds = |kind: u8| matches!(kind, DEVICE_SLOT | ARRAY_DEVICE_SLOT);
        self.config.kinds().enumerate().filter(|(_, k)| holds(*k)).map(|(n, _)| n).collect()
    }

    /// The element in which a SAS device is.
    pub fn element_of(&self, sas: u64) -> Option<usize> {
        let place = self.places.iter().find(|place| place.sas == sas && sas != 0)?;
        Some(usize::from(place.element)).filter(|n| *n < self.config.elements())
    }

    /// The SAS devices in it, each with its physical path. That has the enclosure by its name, the
    /// type, the element of that type (0: all), and the name of the element.
    pub fn paths(&self) -> impl Iterator<Item = (u64, String)> {
        let devices = self.places.iter().filter(|place| place.sas != 0);
        devices.filter_map(|place| {
            let element = usize::from(place.element);
            let (kind, slot) = self.config.type_of(element)?;
            let id = self.config.id;
            let mut path = format!("id1,enc@n{id:x}/type@{kind:x}/slot@{:x}", slot + 1);
            if let Some(name) = self.names.get(element).filter(|name| !name.is_empty()) {
                let plain = |c: char| if c.is_ascii_graphic() && c != '/' { c } else { '_' };
                path.push_str("/elmdesc@");
                path.extend(name.chars().map(plain));
            }
            Some((place.sas, path))
        })
    }

    /// The SAS device in an element.
    pub fn device_in(&self, element: usize) -> Option<u64> {
        let place = self.places.iter().find(|place| usize::from(place.element) == element)?;
        Some(place.sas).filter(|sas| *sas != 0)
    }
}

/// RECEIVE DIAGNOSTIC RESULTS, in the language of the link.
fn receive(facts: &Facts, page: u8) -> Request {
    let (command, len) = match facts {
        Facts::Bridge(_) => {
            let (features, lba) = (u16::from(page), u64::from(sep::RECEIVE));
            let registers = Registers {
                command: SEP_ATTN,
                features,
                lba,
                count: PAGE_LEN / 4,
                ..Registers::default()
            };
            (Command::Ata(registers), PAGE_LEN)
        }
        _ => {
            let [high, low] = PAGE_LEN_SCSI.to_be_bytes();
            (Command::scsi(&[0x1c, 1, page, high, low, 0]), PAGE_LEN_SCSI)
        }
    };
    Request::with_recovery(command, Data::In(u32::from(len)))
}

/// SEND DIAGNOSTIC, likewise.
fn control(facts: &Facts, mut list: Vec<u8>) -> Request {
    let command = match facts {
        Facts::Bridge(_) => {
            list.resize(list.len().next_multiple_of(4), 0);
            let first = list.first().copied().unwrap_or(0);
            Command::Ata(Registers {
                command: SEP_ATTN,
                features: u16::from(first),
                lba: u64::from(sep::SEND),
                count: (list.len() / 4) as u16,
                ..Registers::default()
            })
        }
        _ => {
            let [high, low] = u16::try_from(list.len()).unwrap_or(0).to_be_bytes();
            Command::scsi(&[0x1d, 0x10, 0, high, low, 0])
        }
    };
    Request::with_recovery(command, Data::Out(list))
}

fn malformed(page: u8) -> impl Fn(WireError) -> Error {
    move |e| Error::new(Errno::Io, format!("the enclosure's page {page:02x}h: {e}"))
}

async fn page(
    unit: &Arc<Unit>,
    facts: &Facts,
    core: &Rc<Core>,
    code: u8,
) -> Result<Vec<u8>, Error> {
    let page_name = format!("the enclosure's page {code:02x}h");
    send(unit, core, &receive(facts, code)).await?.good(&page_name)
}

/// Reads an enclosure (E1).
pub async fn read(unit: &Arc<Unit>, facts: &Facts, core: &Rc<Core>) -> Result<Enclosure, Error> {
    for _ in 0..READ_TRIES {
        let config = page(unit, facts, core, ses_page::CONFIGURATION).await?;
        let config = SesConfig::decode(&config).map_err(malformed(ses_page::CONFIGURATION))?;
        let first = page(unit, facts, core, ses_page::STATUS).await?;
        let status = match config.status(&first) {
            Err(e) if e.field == "GENERATION CODE" => continue,
            other => other.map_err(malformed(ses_page::STATUS))?,
        };
        // An optional page is requested where it is listed.
        let listed = page(unit, facts, core, ses_page::SUPPORTED).await.unwrap_or_default();
        let has = |code: u8| ses_supported(&listed).is_ok_and(|pages| pages.contains(&code));
        let mut names = Vec::new();
        if has(ses_page::DESCRIPTORS) {
            let data = page(unit, facts, core, ses_page::DESCRIPTORS).await?;
            names = match config.names(&data) {
                Err(e) if e.field == "GENERATION CODE" => continue,
                other => other.map_err(malformed(ses_page::DESCRIPTORS))?,
            };
        }
        let mut places = Vec::new();
        if has(ses_page::ADDITIONAL) {
            let data = page(unit, facts, core, ses_page::ADDITIONAL).await?;
            places = match config.additional_elements(&data) {
                Err(e) if e.field == "GENERATION CODE" => continue,
                other => other.map_err(malformed(ses_page::ADDITIONAL))?,
            };
        }
        return Ok(Enclosure { config, status, names, places });
    }
    Err(Error::new(Errno::Again, "the enclosure keeps changing while it is read; try again"))
}

/// Switches the locate light of a slot (E2), and looks whether it is.
pub async fn locate(
    unit: &Arc<Unit>,
    facts: &Facts,
    core: &Rc<Core>,
    (element, on): (usize, bool),
) -> Result<(), Error> {
    let now = read(unit, facts, core).await?;
    let status = now.status.get(element).copied().unwrap_or_default();
    let list = now.config.control(element, status, on, status.0[3] & 0x20 != 0);
    send(unit, core, &control(facts, list)).await?.good("the enclosure's control page")?;
    let then = read(unit, facts, core).await?;
    match then.status.get(element) {
        Some(status) if status.is_located() == on => Ok(()),
        _ => Err(Error::new(
            Errno::Io,
            "the enclosure accepted the page, but the light did not \
                                       change",
        )),
    }
}
