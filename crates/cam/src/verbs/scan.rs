//! Scans of buses, for `attach` and `rescan`.
//!
//! A scan may take as long as its slowest device, so it is an order like any other (`orders`). The
//! results belong to the bus, and are taken in whether or not the answer is fetched.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use geom::{Deferred, Error, GraphControl, to_json};
use serde::Serialize;
use serde_json::Value;

use crate::address::{ANY, Path};
use crate::bus::{Bus, join_all};
use crate::class::CamClass;

/// A bus to be scanned, and the part of it: one target with all devices behind it, or all targets.
pub(super) type ScanScope = (Arc<Bus>, Path);

/// The result: buses looked at, and the disks that there were before.
type ScanReport<A> =
    fn(&CamClass, &mut GraphControl, &[ScanScope], &BTreeSet<String>) -> Result<A, Error>;

pub(super) fn bus_scope(bus: Arc<Bus>) -> ScanScope {
    let all = Path::bus(bus.number());
    (bus, all)
}

/// Names of the disks that buses have in the graph, by where they are.
fn disks(looks: &[ScanScope]) -> impl Iterator<Item = String> {
    let names = looks.iter().flat_map(|(bus, _)| bus.devices()).map(|(.., name)| name);
    names.filter(|name| !name.is_empty())
}

impl CamClass {
    /// Looks through buses, and gives the result.
    pub(super) fn scan<A: Serialize + 'static>(
        &self,
        control: &mut GraphControl,
        order: (&'static str, &str),
        looks: Vec<ScanScope>,
        then: ScanReport<A>,
    ) -> Result<Deferred<A>, Error> {
        let verb = order.0;
        let (before, scanned) = (disks(&looks).collect(), looks.clone());
        looks.iter().for_each(|(bus, _)| drop(bus.take_failure()));
        let stored = self.run_on_core_then(
            control,
            order,
            move |core| {
                Box::pin(async move {
                    let scan = |(bus, at): ScanScope| -> Pin<Box<dyn Future<Output = ()> + '_>> {
                        Box::pin(async move {
                            let changes = match at.target {
                                ANY => bus.scan(core).await,
                                target => bus.scan_target(target, core).await,
                            };
                            bus.store_changes(changes);
                        })
                    };
                    join_all(looks.into_iter().map(scan).collect()).await;
                    Ok(Value::Null)
                })
            },
            Some(Box::new(move |class, control| {
                to_json(verb, &then(class, control, &scanned, &before)?)
            })),
        );
        stored.map(Deferred::stored)
    }

    /// Takes in the results of scans, unless that is done; returns the names of the new disks.
    pub(super) fn commit_scans(
        &self,
        control: &mut GraphControl,
        looks: &[ScanScope],
        before: &BTreeSet<String>,
    ) -> Result<Vec<String>, Error> {
        for (bus, _) in looks {
            // Its failure is reported below, also when another caller has looked before.
            drop(self.apply_scan_results_of(control, bus));
        }
        match looks.iter().find_map(|(bus, _)| bus.take_failure()) {
            Some(why) => Err(why),
            None => Ok(disks(looks).filter(|name| !before.contains(name)).collect()),
        }
    }
}
