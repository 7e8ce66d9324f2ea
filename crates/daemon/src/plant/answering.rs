//! Answers of the control thread to questions, between any two events.

use std::sync::Arc;

use bio::sync::Mutex;
use cam::CamClass;
use drivers::Driver;
use engine::Registry;
use geom::Topology;
use mgmt::TimeSlices;
use mgmt::api::{AttachedState, CoreState, SystemState};
use mgmt::config::BusConfig;
use mgmt::plan::{Step, bus_may_provide};

use crate::control_loop::{Published, check};
use crate::exports::{self, FilesInUse, clashes};
use crate::mailbox::{Mailbox, PriorSteps, Query};
use crate::openings::Openings;
use crate::path_checks::show_silent;
use crate::state::{Detail, Sources, busy_ns, memory, state};

/// The sources of answers beside the graph.
pub(super) struct Answering {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) published: Arc<Mutex<Published>>,
    pub(super) registry: Arc<Registry>,
    pub(super) cam: Arc<CamClass>,
    pub(super) drivers: Vec<Arc<dyn Driver>>,
    pub(super) files: FilesInUse,
    pub(super) openings: Openings,
    pub(super) attached: Box<dyn Fn() -> Vec<AttachedState>>,
    pub(super) started_ns: u64,
    pub(super) cores: Vec<CoreState>,
    pub(super) pool_bytes: u64,
}

impl Answering {
    /// Answers all questions that wait.
    pub(super) fn answer(&self, topology: &Topology, now_ns: u64) {
        while let Some(question) = self.mailbox.next_query() {
            // The caller may have disconnected meanwhile.
            match question {
                Query::State(detail, to) => drop(to.send(self.state(topology, now_ns, detail))),
                Query::Ping(to) => drop(to.send(())),
                Query::Check(step, before, to) => {
                    drop(to.send(self.check(topology, &step, &before)));
                }
                Query::Clash(steps, foreseen, to) => {
                    let published = self.published.lock();
                    let there = (topology, &*self.registry);
                    let _ = to.send(clashes::find(there, &published.config, &steps, &foreseen));
                }
                Query::Portals(to) => {
                    let published = self.published.lock();
                    let _ = to.send(published.portals.values().flatten().cloned().collect());
                }
                Query::Config(to) => drop(to.send(self.published.lock().config.clone())),
                Query::Edges(edges, to) => {
                    let names = |edge| Some((edge, topology.edge_names(edge)?));
                    let names = edges.into_iter().filter_map(names).collect();
                    let _ = to.send((names, self.started_ns));
                }
            }
        }
    }

    fn state(&self, topology: &Topology, now_ns: u64, detail: Detail) -> SystemState {
        let daemon = mgmt::api::Daemon {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_ns: now_ns.saturating_sub(self.started_ns),
            cores: with_busy_time(&self.cores),
            memory: memory(self.pool_bytes),
            ..mgmt::api::Daemon::default()
        };
        let published = self.published.lock();
        let mut slices = TimeSlices::default();
        let (view, attached) = match detail {
            Detail::All => (self.registry.view(), (self.attached)()),
            Detail::Figures => (self.registry.figures(&mut || slices.spend(1)), Vec::new()),
        };
        let mut state = state(&Sources {
            detail,
            slices: slices.into(),
            topology,
            registry: &view,
            cam: &self.cam,
            drivers: &self.drivers,
            config: &published.config,
            portals: &published.portals,
            refused: &published.refused,
            refused_disks: &published.refused_disks,
            files: &self.files,
            attached,
            daemon,
            now_ns,
        });
        state.denied_total = self.registry.denied_total();
        show_silent(&mut state, &published.silent_paths);
        drop(published);
        self.openings.show(&mut state);
        state
    }

    fn check(
        &self,
        topology: &Topology,
        step: &Step,
        before: &PriorSteps,
    ) -> mgmt::api::Result<()> {
        let published = self.published.lock();
        let goes = |bus: &&BusConfig| before.removed_buses.contains(&bus.name);
        let stays = published.config.bus.iter().filter(|bus| !goes(bus)).cloned();
        let stays: Vec<BusConfig> = stays.collect();
        let runs = |name: &str| {
            let mut luns = published.config.access.iter().flat_map(|a| a.luns.values());
            luns.any(|lun| lun.provider == name)
        };
        let may_wait = |name: &str| {
            self.registry.login_gate().is_shut()
                || runs(name)
                || bus_may_provide(&stays, name)
                || exports::disk_may_provide(topology, &published.config.disk, name)
        };
        check(topology, step, before, &may_wait)
    }
}

/// The cores with the time that they have worked by now.
fn with_busy_time(cores: &[CoreState]) -> Vec<CoreState> {
    let now = |(i, c): (usize, &CoreState)| CoreState {
        busy_ns: busy_ns(&format!("ashlar-core{i}")),
        ..c.clone()
    };
    cores.iter().enumerate().map(now).collect()
}
