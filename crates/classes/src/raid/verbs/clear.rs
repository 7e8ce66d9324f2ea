//! The `clear` verb: removes the records of disks.

use bio::Errno;
use geom::{Error, GraphControl, MessageAnswer};

use super::{apply_plan, probe};
use crate::members::provider_access;
use crate::raid::assemble::Found;
use crate::raid::geom::NAME;
use crate::raid::{ddf, imsm};
use crate::write_plan::WritePlan;

pub(super) fn clear(
    control: &mut GraphControl,
    members: &[String],
) -> Result<MessageAnswer, Error> {
    for name in members {
        let on = provider_access::find(control, name)?;
        let (sector, media) = provider_access::sizes(control, on);
        let sectors = media / u64::from(sector.max(1));
        let plan = match probe(control, name) {
            Ok(Found::Ddf(meta)) => ddf::erase(&meta, sectors, sector),
            Ok(Found::Intel { .. } | Found::Torn { .. }) => imsm::erase(sectors, sector),
            Err(_) => damaged(control, name, sectors, sector)?,
        };
        apply_plan(control, name, plan)?;
    }
    Ok(MessageAnswer::new(format!("{} cleared", members.join(", "))))
}

/// What clears a record that cannot be read; one that is none is refused.
fn damaged(
    control: &mut GraphControl,
    name: &str,
    sectors: u64,
    sector: u32,
) -> Result<WritePlan, Error> {
    let (intel, ddf) = provider_access::with_read_access(control, NAME, name, |control, edge| {
        let (at, last) = provider_access::read_last_sector(control, name, edge)?;
        let before = at.saturating_sub(last.len() as u64);
        let before = provider_access::read(control, name, edge, before, last.len())?;
        Ok((before.starts_with(imsm::SIGNATURE), ddf::is_signature(&last)))
    })?;
    if !intel && !ddf {
        let what = format!(
            "{name} has no record of an array; nothing was written (`ashlar inspect {name}` shows \
             its contents)"
        );
        return Err(Error::new(Errno::NoEnt, what));
    }
    let mut plan = if intel { imsm::erase(sectors, sector) } else { WritePlan::default() };
    if ddf {
        plan.write((sectors - 1) * u64::from(sector), vec![0; sector as usize]);
        plan.flush();
    }
    Ok(plan)
}
