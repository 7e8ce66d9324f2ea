//! `label`: a disk that is found again by itself.

use bio::Errno;
use geom::{At, Consent, Deserialize, Error, GraphControl, JsonSchema, Verb};

use super::{mode, with};
use crate::members::verb_util::ProviderAnswer;
use crate::members::{provider_access, verb_util};
use crate::multipath::NAME;
use crate::multipath::class::MultipathClass;
use crate::multipath::metadata::Metadata;
use crate::multipath::options::Options;
use crate::multipath::paths::PATHS_MAX;
use crate::shared_args::{Force, Members};

/// Label a disk that has several paths
///
/// Later starts find the paths by the label. It is written to the last sector over the first path
/// only. If another path does not show the label, it leads to another disk: the command is refused
/// and the sector is restored. A disk with contents is refused unless --yes-destroy PROVIDER is
/// given.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Label {
    /// Name of the multipath geom, without the class
    name: String,
    /// Providers of the paths
    members: Members,
    /// Active/Active: all requests use all good paths
    #[schemars(extend("x-short" = "A"))]
    active: bool,
    /// Active/Passive: all requests use the active path [default: this mode]
    #[schemars(extend("x-short" = "P"))]
    passive: bool,
    /// Active/Read: reads use all good paths, other requests the active path
    #[schemars(extend("x-short" = "R"))]
    read: bool,
    // The guard has looked at it before.
    #[serde(rename = "yes_destroy")]
    _consent: Consent,
    force: Force,
}

impl Verb<MultipathClass> for Label {
    const NAME: &'static str = "label";
    const EXAMPLE: &'static str = "multipath label -A data d0 d1";
    const WRITES: bool = true;
    type Answer = ProviderAnswer;

    fn run(self, (class, control): At<'_, MultipathClass>) -> Result<ProviderAnswer, Error> {
        let (name, members) = (self.name.as_str(), &self.members.0);
        verb_util::check_name(name)?;
        if control.topology.find_geom(NAME, name).is_some() {
            let what =
                format!("a multipath {name} is there already; `ashlar multipath stop {name}`");
            return Err(Error::new(Errno::Exist, what));
        }
        let Some(first) = members.first().filter(|_| members.len() <= PATHS_MAX) else {
            return Err(Error::inval(format!("a disk has 1 to {PATHS_MAX} paths")));
        };
        let of = |control: &GraphControl, member: &str| {
            provider_access::find(control, member).map(|on| provider_access::sizes(control, on))
        };
        let (sector_bytes, provider_bytes) = of(control, first)?;
        for (i, member) in members.iter().enumerate() {
            if members.iter().take(i).any(|m| m == member) {
                return Err(Error::inval(format!("{member} is named twice")));
            }
            let (sector, media) = of(control, member)?;
            if (sector, media) != (sector_bytes, provider_bytes) {
                return Err(Error::inval(format!(
                    "{member} has {media} bytes in sectors of {sector}, and {first} has \
                 {provider_bytes} in sectors of {sector_bytes}: it is not the same disk"
                )));
            }
            verb_util::check_member(control, NAME, member, self.force.0, is_own)?;
        }
        let uuid = new_uuid(control)?;
        let (mode, name) =
            (mode(self.active, self.passive, self.read)?.unwrap_or_default(), name.to_owned());
        let options = Options::default();
        let record = Metadata { uuid, name, sector_bytes, provider_bytes, mode, options };
        class.stopped.start(&record.name);
        class.clear_stopped(&record.name);
        prove(control, members, first, &record)?;
        for member in members {
            let on = provider_access::find(control, member)?;
            control.call(|t| {
                t.retaste(on);
                Ok(())
            })?;
        }
        joined(control, members, &record.name)
    }
}

fn is_own(sector: &[u8]) -> bool {
    Metadata::decode(sector).is_ok()
}

/// A random uuid, version 4.
fn new_uuid(control: &mut GraphControl) -> Result<String, Error> {
    let random = control.run_on_core("choosing a uuid", |core| {
        Box::pin(async move {
            let mut random = [0; 16];
            core.reactor().fill_random(&mut random);
            u128::from_be_bytes(random)
        })
    })?;
    let id = random & !(0xf << 76 | 3 << 62) | 4 << 76 | 2 << 62;
    let part = |at: u32, bits: u32| id >> at & ((1 << bits) - 1);
    let (low, mid, high) = (part(96, 32), part(80, 16), part(64, 16));
    Ok(format!("{low:08x}-{mid:04x}-{high:04x}-{:04x}-{:012x}", part(48, 16), part(0, 48)))
}

/// Writes the record through the first path and reads it through the others. If one of them returns
/// another sector, the old content is written back.
fn prove(
    control: &mut GraphControl,
    members: &[String],
    first: &String,
    record: &Metadata,
) -> Result<(), Error> {
    provider_access::with_write_access(
        control,
        NAME,
        first,
        |_, _| Ok(()),
        |control, edge| {
            let (at, old) = provider_access::read_last_sector(control, first, edge)?;
            provider_access::write(control, first, edge, at, record.sector())?;
            let stranger = members.iter().filter(|m| *m != first).find_map(|member| {
                let seen =
                    provider_access::with_read_access(control, NAME, member, |control, edge| {
                        Ok(provider_access::read_last_sector(control, member, edge)?.1)
                    });
                match seen {
                    Ok(sector) if sector == record.sector() => None,
                    Ok(_) => Some(Error::inval(format!(
                        "{member} does not show what was written by {first}: it is another disk. \
                         Nothing was changed"
                    ))),
                    Err(e) => Some(e),
                }
            });
            match stranger {
                None => Ok(()),
                Some(why) => provider_access::write(control, first, edge, at, old).and(Err(why)),
            }
        },
    )
}

/// The answer when every path is there, or else the reasons that tasting gave for the missing ones.
fn joined(
    control: &mut GraphControl,
    members: &[String],
    name: &str,
) -> Result<ProviderAnswer, Error> {
    let answer = verb_util::wait_for_provider(control, NAME, name, members)?;
    let missing = with(control, name, |g, _, _| {
        Ok(members.iter().filter(|m| g.paths.called(m).is_none()).cloned().collect::<Vec<_>>())
    })?;
    if missing.is_empty() {
        return Ok(answer);
    }
    let view = control.topology.view(0);
    let reasons = missing.iter().map(|m| {
        let found = view.iter().flat_map(|g| &g.providers).find(|p| p.name == *m);
        let why = found.and_then(|p| p.taste_outcomes.iter().find(|(c, _)| *c == NAME));
        format!("{m}: {}", why.map_or("not looked at", |(_, why)| why))
    });
    let reasons: Vec<String> = reasons.collect();
    let what = format!("{NAME}/{name} is there, but not by every path: {}", reasons.join("; "));
    Err(Error::new(Errno::Busy, what))
}
