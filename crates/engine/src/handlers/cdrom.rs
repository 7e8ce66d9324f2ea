//! The CD handler: a drive (MMC-6) with an image of a data disc over a provider. Blocks are 2,048
//! bytes regardless of the provider's sectors; nothing can be written.
//!
//! The tray is the unit's condition: START STOP UNIT, PREVENT ALLOW MEDIUM REMOVAL and the operator
//! move it ([`Device::eject`], [`Device::load`]).

use geom::Local;
use wire::scsi::{
    Asc, Command as Cdb, CommandInfo, Disc, Extent, FeatureFilter, Key, MainChannel, Sense,
    TrackAddress, asc, capabilities_page, dvd_physical_format, get_configuration, get_event_status,
    mechanism_status, read_disc_information, read_toc, read_track_information,
};

use super::{DISK, Handler, ImmediateCommand, Job, Plan, tray};
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::medium_state::MediumState;

const ILLEGAL_MODE: Asc = Asc::new(Key::IllegalRequest, 0x64, 0x00);

/// The mode page of capabilities; all pages.
const CAPABILITIES: u8 = 0x2A;
const ALL_PAGES: u8 = 0x3F;

/// The handler.
pub struct Cdrom;

impl Handler for Cdrom {
    fn serves(&self, info: &CommandInfo, _: &Device) -> bool {
        matches!(
            (info.opcode, info.service_action),
            (0x00 | 0x12 | 0x15 | 0x1A | 0x1B | 0x1E | 0x25 | 0x28 | 0x2F | 0x35, _)
                | (0x43 | 0x46 | 0x4A | 0x51 | 0x52 | 0x55 | 0x5A, _)
                | (0xA8 | 0xAD | 0xBB | 0xBD | 0xBE, _)
                | (0xA3, Some(0x0C))
        )
    }

    fn plan(&self, command: &Cdb, device: &Device) -> Result<Plan, Sense> {
        let plan = plan_of(command, device)?;
        let own = matches!(command, Cdb::StartStop { .. });
        match device.condition().refusal() {
            Some(sense) if plan.medium && !own => Err(sense),
            _ => Ok(plan),
        }
    }

    fn now(&self, ask: &mut ImmediateCommand<'_>) -> Result<(), Sense> {
        let Some(device) = ask.device else {
            return Err(Sense::new(asc::LUN_NOT_SUPPORTED));
        };
        let condition = device.condition();
        let open = condition.state() == MediumState::Empty;
        let disc = if open { Disc::None } else { Disc::Data(device.blocks()) };
        let answer = match *ask.command {
            Cdb::ReadToc { msf, format, track, .. } => {
                let field = if format > 2 { 2 } else { 6 };
                let toc = read_toc(device.blocks(), format, track, msf);
                toc.ok_or(Sense::cdb_field(field, None))?
            }
            Cdb::GetConfiguration { which, from, .. } => {
                let filter = match which {
                    0 => FeatureFilter::All,
                    1 => FeatureFilter::Current,
                    _ => FeatureFilter::Single,
                };
                get_configuration(disc, filter, from)
            }
            Cdb::GetEventStatus { classes, .. } => {
                get_event_status(classes, condition.take_event(), !open, open)
            }
            Cdb::ReadDiscInformation { .. } => read_disc_information(),
            Cdb::ReadTrackInformation { .. } => read_track_information(device.blocks()),
            Cdb::ReadDiscStructure { .. } => dvd_physical_format(device.blocks()),
            Cdb::MechanismStatus { .. } => mechanism_status(open),
            Cdb::ModeSense { .. } => return mode_pages(ask, device),
            Cdb::SetCdSpeed { .. } | Cdb::SynchronizeCache { .. } | Cdb::StartStop { .. } => {
                return Ok(());
            }
            Cdb::PreventAllow { prevent } => {
                tray::prevent(ask, prevent);
                return Ok(());
            }
            _ => return DISK.now(ask),
        };
        ask.reply.extend(answer);
        Ok(())
    }

    fn task(&self, job: Job) -> Local<'static, Ending> {
        match job.command {
            Cdb::StartStop { .. } => Box::pin(async move {
                // Nothing was written that could be lost.
                tray::start_stop(&job).await.err().unwrap_or(Ending::Good)
            }),
            _ => DISK.task(job),
        }
    }
}

fn plan_of(command: &Cdb, device: &Device) -> Result<Plan, Sense> {
    let needs_medium = |alloc: u32| Plan { medium: true, ..Plan::reply(alloc) };
    Ok(match *command {
        Cdb::ReadToc { alloc, .. } | Cdb::ReadDiscInformation { alloc, kind: 0 } => {
            needs_medium(alloc)
        }
        Cdb::ReadDiscInformation { .. } => return Err(Sense::cdb_field(1, Some(2))),
        Cdb::ReadTrackInformation { track, alloc, .. } => {
            check_track(track, device)?;
            needs_medium(alloc)
        }
        Cdb::ReadDiscStructure { media, layer, format, alloc, .. } => {
            let dvd = matches!(media, 0) && Disc::Data(device.blocks()).is_dvd();
            if !dvd || layer != 0 || format != 0 {
                return Err(Sense::cdb_field(7, None));
            }
            needs_medium(alloc)
        }
        Cdb::GetConfiguration { which: 3, .. } => return Err(Sense::cdb_field(1, Some(1))),
        // There is nothing to wait for: events are polled.
        Cdb::GetEventStatus { polled: false, .. } => return Err(Sense::cdb_field(1, Some(0))),
        Cdb::GetConfiguration { alloc, .. }
        | Cdb::GetEventStatus { alloc, .. }
        | Cdb::MechanismStatus { alloc }
        | Cdb::ModeSense { alloc, .. } => Plan::reply(alloc),
        Cdb::SetCdSpeed { .. } => Plan { medium: true, ..Plan::NOTHING },
        Cdb::SynchronizeCache { .. } => {
            DISK.plan(command, device).map(|_| Plan { medium: true, ..Plan::NOTHING })?
        }
        Cdb::ReadCd { lba, blocks, kind, main, sub_channel } => {
            read_cd(Extent::new(u64::from(lba), blocks), kind, main, sub_channel, device)?
        }
        Cdb::StartStop { power, eject, .. } => tray::plan_start_stop(device, power, eject)?,
        Cdb::PreventAllow { prevent } => tray::plan_prevent(prevent)?,
        _ => DISK.plan(command, device)?,
    })
}

/// One track, one session.
fn check_track(track: TrackAddress, device: &Device) -> Result<(), Sense> {
    let exists = match track {
        TrackAddress::Block(lba) => u64::from(lba) < device.blocks(),
        TrackAddress::Track(number) | TrackAddress::Session(number) => number == 1,
    };
    if exists { Ok(()) } else { Err(Sense::cdb_field(2, None)) }
}

/// READ CD of user data; there are no raw sectors in an image.
fn read_cd(
    extent: Extent,
    kind: u8,
    main: MainChannel,
    sub_channel: u8,
    device: &Device,
) -> Result<Plan, Sense> {
    if !matches!(kind, 0 | 2) {
        return Err(Sense::new(ILLEGAL_MODE));
    }
    let plain = MainChannel { data: main.data, ..MainChannel::default() };
    if main != plain || sub_channel != 0 {
        return Err(Sense::cdb_field(9, None));
    }
    let plan = DISK.plan(&Cdb::Read(extent), device)?;
    // Without any part of the sectors nothing is sent.
    Ok(if main.data { plan } else { Plan { medium: true, ..Plan::NOTHING } })
}

/// The disk's pages, and the drive's own.
fn mode_pages(ask: &mut ImmediateCommand<'_>, device: &Device) -> Result<(), Sense> {
    let Cdb::ModeSense { ten, page, subpage, .. } = *ask.command else {
        return Err(Sense::new(asc::INTERNAL_FAILURE));
    };
    let own = capabilities_page(device.condition().is_prevented());
    let head = if ten { 8 } else { 4 };
    match (page, subpage) {
        (CAPABILITIES, 0) => ask.reply.resize(head, 0),
        (ALL_PAGES, _) => DISK.now(ask)?,
        _ => return DISK.now(ask),
    }
    ask.reply.extend(own);
    let (len, reply) = (ask.reply.len(), &mut *ask.reply);
    match (ten, reply.as_mut_slice()) {
        (true, [a, b, ..]) => {
            [*a, *b] = u16::try_from(len - 2).unwrap_or(u16::MAX).to_be_bytes();
        }
        (false, [a, ..]) => *a = u8::try_from(len - 1).unwrap_or(u8::MAX),
        _ => {}
    }
    Ok(())
}
