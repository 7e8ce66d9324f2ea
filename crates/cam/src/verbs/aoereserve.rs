//! `aoereserve`: the reservation of an AoE target.

use bio::Errno;
use geom::{At, Deferred, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;
use wire::aoe::{error, reserve};

use super::DiskName;
use super::aoe::{Addresses, list_text, names, refuse};
use super::verb_jobs::DeviceOnCore;
use crate::class::CamClass;

/// Show, set or release the reservation of an AoE target
///
/// A reserved target refuses reads and writes from addresses that are not in its list; its identity
/// and its reservation can still be queried. --set reserves it for the given addresses, or for
/// those of this machine at the interfaces of the bus; machines in the list may change the
/// reservation or --release it. --force overrides a reservation of other machines: writes of its
/// holders may still be executed just before.
#[derive(Deserialize, JsonSchema)]
pub(super) struct AoeReserve {
    name: DiskName,
    addresses: Addresses,
    /// Reserve the target
    set: bool,
    /// Release the reservation
    release: bool,
    /// Override a reservation of other machines
    force: bool,
}

/// The reservation of a target.
#[derive(Serialize, JsonSchema)]
pub(super) struct AoeReserveAnswer {
    /// Result for people.
    text: String,
    /// Addresses that hold the reservation; empty: the target is not reserved.
    holders: Vec<String>,
}

impl Verb<CamClass> for AoeReserve {
    const NAME: &'static str = "aoereserve";
    const POSITIONAL: &'static [&'static str] = &["name", "addresses"];
    const EXAMPLE: &'static str = "aoereserve ada0 --set";
    type Answer = Deferred<AoeReserveAnswer>;

    fn run(self, (class, control): At<'_, CamClass>) -> Result<Self::Answer, Error> {
        let on = self.name.0.clone();
        class.run_on_device(control, (Self::NAME, &on), |talk| {
            Box::pin(async move { self.answer(&talk).await })
        })
    }
}

impl AoeReserve {
    async fn answer(&self, talk: &DeviceOnCore<'_>) -> Result<AoeReserveAnswer, Error> {
        let on = talk.name();
        let mut list = self.addresses.list()?;
        let force = self.force;
        let changes = match (self.set, self.release) {
            (true, true) => return Err(refuse("set or release, not both")),
            (false, true) if !list.is_empty() => {
                return Err(refuse("a reservation is released without addresses"));
            }
            (false, false) if force || !list.is_empty() => {
                return Err(refuse("--set or --release?"));
            }
            (set, release) => set || release,
        };
        if self.set && list.is_empty() {
            list = talk.own()?;
        }
        let how = match (changes, force) {
            (false, _) => reserve::READ,
            (true, false) => reserve::SET,
            (true, true) => reserve::FORCE,
        };
        let now = match talk.holders(how, &list).await? {
            Ok(now) => now,
            Err(error::RESERVED) => {
                let others = talk.holders(reserve::READ, &[]).await?.unwrap_or_default();
                let what = format!(
                    "{on} is reserved for {}; --force takes it from them",
                    names(&others).join(", ")
                );
                return Err(Error::new(Errno::Busy, what));
            }
            Err(code) => return Err(talk.wrong(code)),
        };
        Ok(AoeReserveAnswer { text: list_text(on, &now, "not reserved"), holders: names(&now) })
    }
}
