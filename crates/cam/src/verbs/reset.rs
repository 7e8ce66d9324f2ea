//! `reset`: of devices, of all that is on a bus, and of a port of a multiplier.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Errno, Segs};
use geom::{At, Core, Deferred, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;
use wire::ata::{pm_value, pscr};

use super::verb_jobs::DeviceOnCore;
use crate::address::{ANY, Path};
use crate::bus::join_all;
use crate::ccb::{Ccb, Command, Flags, Owner, Priority};
use crate::class::CamClass;
use crate::periph::Facts;
use crate::periph::pass::{Data, Request};
use crate::probe::{LINK_POLL_NS, LINK_TRIES, RESET_NS, register};
use crate::unit::Unit;

/// How long a reset may take, ms.
const RESET_TIMEOUT_MS: u32 = 10_000;
/// How long the reset of a port may, ns: its link is polled, and the multiplier read each time.
const PORT_RESET_NS: u64 = 60_000_000_000;

/// Reset a device, a bus, or a port of a multiplier
///
/// Commands in progress on a device are sent again after the reset, before others and in order,
/// without using up a retry. No other command is sent until the reset has ended and the device has
/// settled. NAME is a device (da0), a bus (0: every device on it), one device of a bus by its
/// target and logical unit (0:3:0), or `all`. With -p the link of a port of a port multiplier is
/// reset, regardless of the device behind it.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Reset {
    /// Device, BUS, BUS:TARGET, BUS:TARGET:LUN, or all
    name: String,
    /// Port number; NAME is the port multiplier, such as pmp0
    #[schemars(extend("x-short" = "p"))]
    port: Option<u64>,
}

/// The result of a reset.
#[derive(Serialize, JsonSchema)]
pub(super) struct ResetAnswer {
    /// Result in one sentence.
    message: String,
    /// Number of devices that were reset; absent: a port was reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<usize>,
}

impl Verb<CamClass> for Reset {
    const NAME: &'static str = "reset";
    const EXAMPLE: &'static str = "reset da0";
    type Answer = Deferred<ResetAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let on = self.name.clone();
        // A disk may have any name of its bus.
        let Some(meant) = Path::typed(&on).filter(|_| class.by_name(&on).is_none()) else {
            let port = self.port;
            return class.run_on_device(control, (Self::NAME, &on), move |talk| {
                Box::pin(async move { talk.reset(port).await })
            });
        };
        if self.port.is_some() {
            let what = format!("port: {on} is no multiplier (pmp0, `ashlar cam devlist`)");
            return Err(Error::inval(what));
        }
        let buses = class.buses().into_iter().filter(|bus| Path::bus(bus.number()).meets(meant));
        let buses: Vec<_> = buses.collect();
        let devices = buses.iter().flat_map(|bus| bus.devices()).map(|(unit, ..)| unit);
        let units: Vec<Arc<Unit>> = devices.filter(|unit| unit.path().meets(meant)).collect();
        let (all_targets, names_one) = (meant.target == ANY, meant.lun != ANY);
        if buses.is_empty() || (units.is_empty() && !all_targets) {
            let what = format!(
                "there is no device at {on}; `ashlar cam devlist -v` lists devices \
                                with their addresses"
            );
            return Err(Error::new(Errno::NoEnt, what));
        }
        let what = match (all_targets, names_one) {
            (true, _) if meant.bus == ANY => "all buses".to_owned(),
            (true, _) => format!("bus {}", meant.bus),
            (false, true) => path_text(meant),
            (false, false) => format!("{}:{}", meant.bus, meant.target),
        };
        let number = units.len();
        class.run_on_core(control, (Self::NAME, &on), move |core| {
            Box::pin(async move {
                // All are held before the first is reset: they may share the part that is reset.
                let most_ns = u64::from(RESET_TIMEOUT_MS) * 4_000_000;
                let held: Vec<_> =
                    buses.iter().map(|bus| bus.reset_begins(meant, most_ns, core)).collect();
                let failed = reset_units(&units, core).await;
                drop(held);
                if let Some((_, first)) = failed.first() {
                    let also = match failed.len() {
                        1 => String::new(),
                        n => format!(" (and {} more of {number} devices)", n - 1),
                    };
                    return Err(Error::new(first.kind, format!("{}{also}", first.message)));
                }
                let message = reset_message(&what, None);
                Ok(ResetAnswer { message, devices: Some(number) })
            })
        })
    }
}

/// Address of a device in camcontrol's messages about resets.
fn path_text(path: Path) -> String {
    format!("{}:{}:{}", path.bus, path.target, path.lun)
}

/// Result of a reset, in camcontrol's words.
fn reset_message(what: &str, failed: Option<&str>) -> String {
    match failed {
        None => format!("Reset of {what} was successful"),
        Some(why) => format!("Reset of {what} returned an error: {why}"),
    }
}

async fn reset_unit(unit: &Arc<Unit>, core: &Rc<Core>) -> Result<(), Error> {
    let ccb = Ccb {
        command: Command::Reset,
        flags: Flags::RAW,
        priority: Priority::Dev,
        timeout_ms: RESET_TIMEOUT_MS,
        retries: 0,
        end_ns: u64::MAX,
        length: 0,
        owner: Owner::Task(0),
    };
    let ended = unit.execute(core, ccb, &Segs::new()).await;
    match ended.result {
        Ok(_) => Ok(()),
        Err(e) => Err(Error::new(
            e,
            reset_message(&path_text(unit.path()), Some(ended.outcome.status.text())),
        )),
    }
}

/// Resets units concurrently; returns the failures by unit.
async fn reset_units(units: &[Arc<Unit>], core: &Rc<Core>) -> Vec<(Path, Error)> {
    let failed = std::cell::RefCell::new(Vec::new());
    let one = |unit| -> Pin<Box<dyn Future<Output = ()> + '_>> {
        let failed = &failed;
        Box::pin(async move {
            if let Err(why) = reset_unit(unit, core).await {
                failed.borrow_mut().push((unit.path(), why));
            }
        })
    };
    join_all(units.iter().map(one).collect()).await;
    failed.into_inner()
}

impl DeviceOnCore<'_> {
    async fn reset(&self, port: Option<u64>) -> Result<ResetAnswer, Error> {
        if let Some(port) = port {
            return self.reset_port(port).await;
        }
        reset_unit(&self.found.unit, self.core).await?;
        let message = reset_message(&path_text(self.found.unit.path()), None);
        Ok(ResetAnswer { message, devices: Some(1) })
    }

    async fn reset_port(&self, port: u64) -> Result<ResetAnswer, Error> {
        let name = self.name();
        let refuse = |kind, what: String| Err(Error::new(kind, format!("{name}: {what}")));
        let Facts::Multiplier(facts) = &self.found.facts else {
            let what = "port: not a port multiplier; without -p the device itself is reset";
            return refuse(Errno::NotSup, what.into());
        };
        let Some(number) = u8::try_from(port).ok().filter(|n| usize::from(*n) < facts.ports.len())
        else {
            let what =
                format!("port={port}: out of range ({} ports, counted from 0)", facts.ports.len());
            return refuse(Errno::Inval, what);
        };
        let reactor = self.core.reactor();
        // In any case, the devices behind the port wait no longer than this lives.
        let behind = Path::target(self.found.bus.number(), port);
        let _held = self.found.bus.reset_begins(behind, PORT_RESET_NS, self.core);
        self.port(number, pscr::CONTROL, Some(pscr::RESET)).await?;
        reactor.sleep(RESET_NS).await;
        self.port(number, pscr::CONTROL, Some(0)).await?;
        let mut status = self.port(number, pscr::STATUS, None).await?;
        for _ in 0..LINK_TRIES {
            if status & pscr::DET != pscr::SEEN {
                break;
            }
            reactor.sleep(LINK_POLL_NS).await;
            status = self.port(number, pscr::STATUS, None).await?;
        }
        // The reset itself did that: no disk was exchanged.
        let error = self.port(number, pscr::ERROR, None).await?;
        self.port(number, pscr::ERROR, Some(error)).await?;
        match status & pscr::DET {
            pscr::UP => {
                let message = format!("port {port} of {name} was reset");
                Ok(ResetAnswer { message, devices: None })
            }
            pscr::SEEN => refuse(
                Errno::Io,
                format!(
                    "the link of port {port} does not return; `ashlar cam reset {name} \
                         -p {port}` tries once more"
                ),
            ),
            _ => {
                let message = format!("port {port} of {name} was reset; it is empty");
                Ok(ResetAnswer { message, devices: None })
            }
        }
    }

    /// Reads or writes a register of a port.
    async fn port(&self, port: u8, which: u16, value: Option<u32>) -> Result<u32, Error> {
        let command = register(port, which, value).command;
        let answer = self.send(Request::with_recovery(command, Data::None)).await?;
        let port_value = pm_value(answer.ended.outcome.answer);
        answer.good(&format!("{}: port {port}", self.name())).map(|_| port_value)
    }
}
