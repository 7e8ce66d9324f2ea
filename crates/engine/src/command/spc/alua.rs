//! REPORT TARGET PORT GROUPS and SET TARGET PORT GROUPS (SPC-4 6.37, 6.45). How states change is
//! drawn in `alua.rs`.

use std::sync::Arc;

use bio::Errno;
use geom::Local;
use wire::scsi::{
    Command as Cdb, Sense, SetGroup, StateCause, asc, parse_set_target_port_groups,
    report_target_port_groups,
};

use super::EngineCommand;
use crate::handlers::ImmediateCommand;
use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::alua::{PORT_GROUPS_MAX, Stage, TRANSITION_S_MAX};

/// Time between two looks at a change that is on its way, ns.
const LOOK_NS: u64 = 1_000_000;

/// Longest time of a change, ns.
const TRANSITION_NS_MAX: u64 = TRANSITION_S_MAX as u64 * 1_000_000_000;

/// Longest list: every group there can be. A longer one is refused.
const LIST_MAX: u32 = 4 + 4 * PORT_GROUPS_MAX as u32;

pub(super) struct ReportTargetPortGroups;

impl EngineCommand for ReportTargetPortGroups {
    fn plan(&self, command: &Cdb, _: &Device) -> Result<Plan, Sense> {
        let Cdb::ReportTargetPortGroups { alloc, .. } = *command else {
            return Err(Sense::new(asc::INTERNAL_FAILURE));
        };
        Ok(Plan::reply(alloc))
    }

    fn now(&self, ask: &mut ImmediateCommand<'_>) -> Result<(), Sense> {
        let (Cdb::ReportTargetPortGroups { extended, .. }, Some(device)) =
            (ask.command, ask.device)
        else {
            return Err(Sense::new(asc::INTERNAL_FAILURE));
        };
        let groups = ask.registry.port_groups_of(device);
        let data = report_target_port_groups(&groups, extended.then_some(TRANSITION_S_MAX));
        ask.reply.extend(data);
        Ok(())
    }
}

pub(super) struct SetTargetPortGroups;

impl EngineCommand for SetTargetPortGroups {
    fn plan(&self, command: &Cdb, _: &Device) -> Result<Plan, Sense> {
        let Cdb::SetTargetPortGroups { len } = *command else {
            return Err(Sense::new(asc::INTERNAL_FAILURE));
        };
        if len > LIST_MAX {
            return Err(Sense::cdb_field(6, None));
        }
        Ok(Plan { medium: false, ..Plan::task(len) })
    }

    fn task(&self, job: Job) -> Local<'static, Ending> {
        Box::pin(async move {
            match set(&job).await {
                Ok(()) => Ending::Good,
                Err(ending) => ending,
            }
        })
    }
}

async fn set(job: &Job) -> Result<(), Ending> {
    if !job.port.port_group().is_explicit() {
        // INQUIRY of the port reports that SET TARGET PORT GROUPS is not supported.
        return Err(Ending::Check(Sense::cdb_field(1, Some(4))));
    }
    let list = job.data.to_vec();
    let lines = parse_set_target_port_groups(&list).map_err(Ending::Check)?;
    check(job, &lines)?;
    let wanted: Vec<_> = lines.iter().map(|l| (l.group, l.state)).collect();
    let registry = &job.registry;
    let begun = registry.set_access_states(&wanted, StateCause::Explicit, Some(job.nexus.clone()));
    let transition = begun.map_err(|e| {
        Ending::check(match e.kind {
            Errno::Busy => asc::ALUA_TRANSITION,
            _ => asc::SET_PORT_GROUPS_FAILED,
        })
    })?;
    let started_ns = job.core().now();
    loop {
        let late = job.core().now().saturating_sub(started_ns) > TRANSITION_NS_MAX;
        let stage = match job.is_aborted() || late {
            true => registry.give_up(&transition),
            false => transition.stage(),
        };
        match stage {
            Stage::Done => return Ok(()),
            Stage::Failed => return Err(Ending::check(asc::SET_PORT_GROUPS_FAILED)),
            Stage::Draining => job.core().reactor().sleep(LOOK_NS).await,
        }
    }
}

/// Every group named is there, is one of this unit's, and takes orders.
fn check(job: &Job, lines: &[SetGroup]) -> Result<(), Ending> {
    let groups = job.registry.port_groups();
    let port_groups = job.registry.port_groups_of(&job.device);
    for line in lines {
        let group = groups.iter().find(|g| g.id() == line.group);
        let takes = group.is_some_and(|g: &Arc<_>| g.is_explicit());
        if !takes || !port_groups.iter().any(|g| g.group == line.group) {
            let at = line.at.saturating_add(2);
            return Err(Ending::Check(Sense::list_field(at, None)));
        }
    }
    Ok(())
}
