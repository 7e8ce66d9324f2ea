//! Common parts of the verbs of classes with members: names, numbers, refusals.

use bio::Errno;
use geom::{
    ConsumerId, Error, GeomId, GraphControl, MessageAnswer, ProviderId, Taster, Topology, Transient,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::frame::FrameError;
use super::{Stopped, Throttle, frame, provider_access};

/// The command that removes the provider under one of its consumers from a geom.
pub(crate) fn remove_command(
    class: &str,
    t: &Topology,
    me: GeomId,
    on: ConsumerId,
) -> Option<String> {
    let below = t.below(on)?;
    Some(format!("ashlar {class} remove {} {}", t.geom_name(me), t.provider_name(below)))
}

/// The command with which a geom closes all of them.
pub(crate) fn stop_command(class: &str, t: &Topology, me: GeomId) -> Option<String> {
    Some(format!("ashlar {class} stop {}", t.geom_name(me)))
}

/// The rate of rebuilds that `configure` set.
pub(crate) fn rate_change(class: &str, name: &str, throttle: &Throttle) -> Option<Transient> {
    let rate = throttle.rate();
    (rate > 0).then(|| Transient {
        setting: format!("rebuilds copy at most {rate} bytes a second"),
        undo: format!("ashlar {class} configure --sync-rate 0 {name}"),
    })
}

/// The pause of rebuilds.
pub(crate) fn pause_change(class: &str, name: &str, throttle: &Throttle) -> Option<Transient> {
    throttle.is_paused().then(|| Transient {
        setting: "rebuilds are paused".to_owned(),
        undo: format!("ashlar {class} resume {name}"),
    })
}

/// The action for a rebuild that is paused or runs, for `status`.
pub(crate) fn rebuild_action(class: &str, name: &str, throttle: &Throttle) -> String {
    match throttle.is_paused() {
        true => format!("`ashlar {class} resume {name}` continues it."),
        false => "Nothing: this ends by itself.".to_owned(),
    }
}

/// When a record was last written, by the time in it (seconds since 1970; 0: not known).
pub(crate) fn last_written(unix_s: u64) -> String {
    let at = i64::try_from(unix_s).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    match at.filter(|_| unix_s != 0) {
        Some(at) => format!("last written {at}"),
        None => "time of the last write not known".to_owned(),
    }
}

/// A number for a new geom, from the present providers and the time. Two geoms labelled in one
/// daemon differ; two labelled anywhere differ with the probability that 32 bits give.
pub(crate) fn new_id(control: &GraphControl, name: &str) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ control.now_ns();
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    ((hash >> 32) ^ hash) as u32 | 1
}

pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let fits = !name.is_empty() && name.len() < frame::TEXT;
    let good = name.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
    match fits && good {
        true => Ok(()),
        false => Err(Error::inval(format!(
            "{name:?} cannot be a name; use 1 to 15 letters, digits and signs, without a slash"
        ))),
    }
}

/// Checks that a provider may be labelled: not in use, and nothing in its last sector that would be
/// lost. `is_own` recognizes records of the class itself.
pub(crate) fn check_member(
    control: &mut GraphControl,
    class: &str,
    name: &str,
    force: bool,
    is_own: impl Fn(&[u8]) -> bool,
) -> Result<(), Error> {
    provider_access::with_read_access(control, class, name, |control, edge| {
        let (_, bytes) = provider_access::read_last_sector(control, name, edge)?;
        if force || bytes.iter().all(|b| *b == 0) || is_own(&bytes) {
            return Ok(());
        }
        let counts = control.topology.find(name).map(|on| control.topology.counts(on));
        if counts.is_some_and(|counts| counts.w > 0 || counts.e > 0) {
            // The user of the provider has written that sector.
            return Err(provider_access::busy(name, Errno::Perm));
        }
        let what =
            format!("the last sector of {name} holds something (`ashlar inspect {name}` shows it)");
        Err(Error::new(Errno::Exist, what).destroying(vec![name.to_owned()]))
    })?;
    // Labelling needs the provider to be opened for writing for a moment.
    provider_access::with_write_access(control, class, name, |_, _| Ok(()), |_, _| Ok(()))
}

/// The provider of a new geom.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ProviderAnswer {
    /// Result in one sentence.
    message: String,
    /// Name of the provider.
    provider: String,
}

/// The answer once the provider is there, or else the reasons that tasting gave for the members.
pub(crate) fn wait_for_provider(
    control: &mut GraphControl,
    class: &str,
    name: &str,
    members: &[String],
) -> Result<ProviderAnswer, Error> {
    control.settle()?;
    let provider = format!("{class}/{name}");
    if control.topology.find(&provider).is_some() {
        return Ok(ProviderAnswer { message: format!("{provider} is there"), provider });
    }
    let view = control.topology.view(0);
    let reasons = members.iter().filter_map(|m| {
        let found = view.iter().flat_map(|g| &g.providers).find(|p| p.name == *m)?;
        let (_, why) = found.taste_outcomes.iter().find(|(c, _)| *c == class)?;
        Some(format!("{m}: {why}"))
    });
    let reasons: Vec<String> = reasons.collect();
    Err(Error::new(Errno::NxIo, format!("{provider} did not start: {}", reasons.join("; "))))
}

/// Has every provider tasted again, so that a stopped geom is found.
pub(crate) fn start(
    control: &mut GraphControl,
    class: &str,
    stopped: &Stopped,
    on: &str,
) -> Result<MessageAnswer, Error> {
    let name = geom::bare_name(class, on);
    if !stopped.start(name) {
        let what = format!("{class} {name} was not stopped; `ashlar {class} status` shows all");
        return Err(Error::new(Errno::NoEnt, what));
    }
    provider_access::taste_all_again(control)?;
    match control.topology.find(&format!("{class}/{name}")) {
        Some(_) => Ok(MessageAnswer::new(format!("{class}/{name} is there"))),
        None => {
            let mut geoms = control.topology.class_view(class, 0).into_iter();
            let trouble = geoms
                .find(|geom| geom.name == name)
                .and_then(|geom| geom.troubles.into_iter().next());
            let what = match trouble {
                Some(trouble) => {
                    format!("{class}/{name} did not start: {}. {}", trouble.why, trouble.action)
                }
                None => format!(
                    "{class}/{name}: members are missing; `ashlar {class} status` shows how many"
                ),
            };
            Err(Error::new(Errno::NxIo, what))
        }
    }
}

/// Refuses a provider that is the geom `of` itself or is stacked on it. Such a provider is not a
/// member: its data can contain a member's label, at the place where that member ended before it
/// grew.
pub(crate) fn check_cycle(t: &Topology, on: ProviderId, of: Option<GeomId>) -> Result<(), Error> {
    let what = "the provider uses the geom that it would be a member of: that would make a cycle";
    match of.is_some_and(|geom| t.is_based_on(on, geom)) {
        true => Err(Error::new(Errno::NoDev, what)),
        false => Ok(()),
    }
}

/// The record of a class in the last sector of a provider that it tastes, or the reason why there
/// is none. `noun` names the record.
pub(crate) async fn tasted<R>(
    disk: &Taster,
    noun: &str,
    decode: impl Fn(&[u8]) -> Result<R, FrameError>,
) -> Result<R, String> {
    let Some(at) = frame::last_sector(disk.sector_bytes, disk.media_bytes) else {
        return Err(format!("too small to hold a {noun}"));
    };
    match disk.read(at, disk.sector_bytes as usize).await {
        Ok(sector) => decode(&sector).map_err(|e| e.to_string()),
        Err(e) => Err(format!("its last sector: {}", e.text())),
    }
}

/// The record of a class in the last sector of a provider, for a verb. ENODEV if there is no record
/// or it is invalid.
pub(crate) fn read<R>(
    control: &mut GraphControl,
    class: &str,
    member: &str,
    decode: impl Fn(&[u8]) -> Result<R, FrameError>,
) -> Result<R, Error> {
    let bytes = provider_access::with_read_access(control, class, member, |control, edge| {
        Ok(provider_access::read_last_sector(control, member, edge)?.1)
    })?;
    let next = format!("`ashlar inspect {member}` shows its contents");
    decode(&bytes).map_err(|e| Error::new(Errno::NoDev, format!("{member}: {e}; {next}")))
}

/// Zeroes the last sector of each provider that has a record of the class there, including damaged
/// records and other versions. A provider without one is refused; `noun` names the missing record.
pub(crate) fn clear<R>(
    control: &mut GraphControl,
    class: &str,
    members: &[String],
    noun: &str,
    decode: impl Fn(&[u8]) -> Result<R, FrameError>,
) -> Result<MessageAnswer, Error> {
    for member in members {
        let check = |control: &mut GraphControl, edge| {
            let (_, bytes) = provider_access::read_last_sector(control, member, edge)?;
            match decode(&bytes) {
                Err(FrameError::Foreign) => {
                    let what = format!(
                        "{member} has no {noun}; nothing was written (`ashlar inspect {member}` \
                         shows its contents)"
                    );
                    Err(Error::new(Errno::NoEnt, what))
                }
                _ => Ok(()),
            }
        };
        provider_access::with_write_access(control, class, member, check, |control, edge| {
            let (at, bytes) = provider_access::read_last_sector(control, member, edge)?;
            provider_access::write(control, member, edge, at, vec![0; bytes.len()])
        })?;
    }
    Ok(MessageAnswer::new(format!("{} cleared", members.join(", "))))
}
