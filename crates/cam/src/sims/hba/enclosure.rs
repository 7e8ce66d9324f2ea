//! Devices of a virtual HBA other than disks: an enclosure (on a SAS expander, or behind a bridge
//! of SATA), and the expander itself.

use wire::ata::{SEP_ATTN, SepIdentify, error, sep};
use wire::scsi::{
    ARRAY_DEVICE_SLOT, AdditionalElement, Command, Identity, PeripheralType, Sense, SesConfig,
    SesStatus, SesType, asc, inquiry_data, ses_page, truncate,
};
use wire::smp::{Manufacturer, Phy, ReportGeneral, function, result, smp_refusal};

use super::ata::refused;
use super::multiplier;
use super::target::{Target, Work};
use crate::ccb::{Outcome, Registers};

/// Type of the device in a bay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// A disk.
    #[default]
    Disk,
    /// SAS: a drive for discs of its sector, which are only read.
    Cdrom,
    /// An enclosure for the bays below this number; on SATA it is behind a bridge.
    Enclosure(u8),
    /// SATA: a port multiplier with so many ports.
    Multiplier(u8),
}

/// An enclosure's view of its bays: the SAS address of the disk in each.
pub(super) type EnclosedDisks = Vec<Option<u64>>;

fn config(target: &Target) -> SesConfig {
    let Role::Enclosure(slots) = target.spec.role else { return SesConfig::default() };
    SesConfig {
        generation: 1,
        id: target.spec.wwn,
        vendor: target.spec.vendor.clone(),
        product: target.spec.model.clone(),
        revision: target.spec.revision.clone(),
        types: vec![
            SesType { kind: ARRAY_DEVICE_SLOT, count: slots, text: "ArrayDevices".into() },
            SesType { kind: 0x04, count: 1, text: "Temperature".into() },
        ],
    }
}

/// A diagnostic page; none where there is no such page.
fn page(target: &Target, code: u8) -> Option<Vec<u8>> {
    let config = config(target);
    let slots = target.enclosed_disks.len();
    Some(match code {
        ses_page::SUPPORTED => {
            let mut pages = vec![0, 1, 2, ses_page::DESCRIPTORS];
            // A bridge knows no SAS addresses.
            pages.extend((!target.is_ata).then_some(ses_page::ADDITIONAL));
            let mut out = vec![0, 0, 0, pages.len() as u8];
            out.append(&mut pages);
            out
        }
        ses_page::CONFIGURATION => config.encode(),
        ses_page::STATUS => {
            let slot = |(n, seen): (usize, &Option<u64>)| {
                let (locate, fault) = target.lights.get(n).copied().unwrap_or_default();
                let code = if seen.is_some() { 1 } else { 5 };
                SesStatus([code, 0, if locate { 2 } else { 0 }, if fault { 0x20 } else { 0 }])
            };
            let mut each: Vec<SesStatus> =
                target.enclosed_disks.iter().enumerate().map(slot).collect();
            // 28 degrees: 20 is zero.
            each.push(SesStatus([1, 0, 48, 0]));
            config.encode_status(&each)
        }
        ses_page::DESCRIPTORS => {
            let mut names: Vec<String> = (1..=slots).map(|n| format!("Slot {n:02}")).collect();
            names.push("Backplane".into());
            config.encode_names(&names)
        }
        ses_page::ADDITIONAL if !target.is_ata => {
            let place = |(n, sas): (usize, &Option<u64>)| AdditionalElement {
                element: n as u16,
                slot: n as u8,
                sas: sas.unwrap_or(0),
            };
            let places: Vec<AdditionalElement> =
                target.enclosed_disks.iter().enumerate().map(place).collect();
            config.encode_additional_elements(&places, target.spec.wwn)
        }
        _ => return None,
    })
}

/// A control page that was sent: the lights are as it requests. False when it makes no sense.
pub(super) fn control(target: &mut Target, list: &[u8]) -> bool {
    let Ok(wishes) = config(target).parse_control(list) else { return false };
    let slots = target.enclosed_disks.len();
    target.lights.resize(slots, (false, false));
    for (element, locate, fault) in wishes {
        if let Some(light) = target.lights.get_mut(element) {
            *light = (locate, fault);
        }
    }
    true
}

/// A SCSI command to an enclosure.
pub(super) fn parse_scsi(target: &Target, cdb: &[u8]) -> Result<Work, Outcome> {
    let refuse = |sense| Err(Outcome::check(sense));
    let command = match Command::parse(cdb) {
        Ok(command) => command,
        Err(e) => return refuse(e.sense()),
    };
    let reply = |mut data: Vec<u8>, alloc: u32| {
        truncate(&mut data, alloc);
        Ok(Work::Reply(data))
    };
    match command {
        Command::TestUnitReady => Ok(Work::Reply(Vec::new())),
        Command::Inquiry { page: None, alloc } => {
            let identity = Identity {
                kind: PeripheralType::Enclosure,
                vendor: target.spec.vendor.clone(),
                product: target.spec.model.clone(),
                revision: target.spec.revision.clone(),
                serial: target.spec.serial.clone(),
                ..Identity::default()
            };
            reply(inquiry_data(&identity), alloc)
        }
        Command::ReceiveDiagnostic { page: Some(code), alloc } => match page(target, code) {
            Some(data) => reply(data, alloc),
            None => refuse(Sense::cdb_field(2, None)),
        },
        Command::SendDiagnostic { page_format: true, .. } => Ok(Work::Control),
        _ => refuse(Sense::new(asc::INVALID_OPCODE)),
    }
}

/// An ATA command to an enclosure behind a bridge, or to a port multiplier.
pub(super) fn parse_ata(target: &Target, r: &Registers) -> Result<Work, Outcome> {
    let code = r.features.to_le_bytes()[0];
    let lba = r.lba.to_le_bytes()[0];
    match (target.spec.role, r.command, lba) {
        (Role::Enclosure(_), SEP_ATTN, sep::IDENTIFY) => {
            let spec = &target.spec;
            let identify = SepIdentify {
                id: spec.wwn,
                vendor: spec.vendor.clone(),
                product: spec.model.clone(),
                revision: spec.revision.clone(),
                firmware: spec.serial.clone(),
                interface: "S-E-S".into(),
            };
            Ok(Work::Reply(identify.encode()))
        }
        (Role::Enclosure(_), SEP_ATTN, sep::RECEIVE) => {
            let mut data = page(target, code).ok_or(refused(error::ABORT))?;
            data.truncate(usize::from(r.count) * 4);
            Ok(Work::Reply(data))
        }
        (Role::Enclosure(_), SEP_ATTN, sep::SEND) => Ok(Work::Control),
        (Role::Multiplier(_), ..) => {
            target.register.map(multiplier::answered).ok_or(refused(error::ABORT))
        }
        _ => Err(refused(error::ABORT)),
    }
}

/// A request to the expander on which an enclosure's bays are: `own` is its SAS address.
pub(super) fn smp(own: u64, seen: &EnclosedDisks, function: u8, number: u8) -> Vec<u8> {
    // A phy a bay, one to the HBA, and one within to the enclosure.
    let phys = u8::try_from(seen.len() + 2).unwrap_or(u8::MAX);
    match function {
        function::REPORT_GENERAL => ReportGeneral { changes: 1, phys, enclosure: own }.encode(),
        function::MANUFACTURER => Manufacturer {
            vendor: "LSILOGIC".into(),
            product: "SASX28 A.0".into(),
            revision: "9".into(),
        }
        .encode(),
        function::DISCOVER if number < phys => {
            let other = match usize::from(number) {
                n if n == seen.len() => Some(own | 0x8000),
                n if n > seen.len() => Some(own),
                n => seen.get(n).copied().flatten(),
            };
            let is_attached = other.is_some();
            Phy {
                number,
                attached: u8::from(is_attached),
                rate: if is_attached { 0x0a } else { 0 },
                sata: false,
                ssp: is_attached,
                sas_address: own,
                attached_sas_address: other.unwrap_or(0),
            }
            .encode()
        }
        function::DISCOVER => smp_refusal(function, result::NO_PHY),
        _ => smp_refusal(function, result::UNKNOWN_FUNCTION),
    }
}
