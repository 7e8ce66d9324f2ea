//! The one place where refusals of the graph become errors of the API.

use bio::Errno;
use geom::{ProviderId, Topology};
use mgmt::api::{Error, Kind};
use mgmt::shell_word;

/// The kind of API error that an errno means.
pub fn kind_of(errno: Errno) -> Kind {
    match errno {
        Errno::NoEnt | Errno::NoAttr => Kind::NotFound,
        Errno::Exist => Kind::Exists,
        Errno::Busy | Errno::Perm | Errno::Conflict => Kind::Busy,
        Errno::NotSup | Errno::NoSys | Errno::NoDev | Errno::RoFs => Kind::Unsupported,
        Errno::Inval | Errno::Fault | Errno::Loop => Kind::Usage,
        Errno::NoSpc | Errno::DeadLk | Errno::NoMem => Kind::Limit,
        Errno::TimedOut | Errno::Again | Errno::Canceled => Kind::Timeout,
        Errno::Io | Errno::NxIo | Errno::RemoteIo => Kind::Device,
    }
}

/// Advice for a disk that cannot be opened: its error names the file and the remedy, and the names
/// in `list` do not help.
pub const DISK_REMEDY: &str =
    "Correct the file or device that the message names; `ashlar doctor` checks all of them.";

/// A refusal of the graph as an error of the API. A name at the beginning of its sentence is
/// removed, because the error carries the name already.
pub fn from_geom(op: &str, at: &str, error: geom::Error) -> Error {
    if !error.destroys.is_empty() {
        let flag = |name: &String| format!("--yes-destroy {}", shell_word(name));
        let flags: Vec<String> = error.destroys.iter().map(flag).collect();
        let next = format!("Repeat the command with {} if the data may be lost.", flags.join(" "));
        return Error::new(Kind::WouldDestroy, op, error.message).at(at).next(next);
    }
    let what = error.message.strip_prefix(at).and_then(|rest| rest.strip_prefix(": "));
    Error::new(kind_of(error.kind), op, what.unwrap_or(&error.message)).at(at)
}

/// The next step after a refused loss of the data of an object of the configuration.
pub fn next_with_consent(name: &str) -> String {
    let word = shell_word(name);
    format!("Run `ashlar apply --yes-destroy {word}` if the data may be lost.")
}

/// The provider of a name that outlives a restart, as in a configuration. Refuses a provider below
/// an inserted layer, as it has another name at the next start.
pub fn find_persistent(topology: &Topology, op: &str, name: &str) -> Result<ProviderId, Error> {
    let Some(provider) = topology.find(name) else { return Err(no_provider(topology, op, name)) };
    let Some(layer) = topology.covering(provider) else { return Ok(provider) };
    let (layer, known) = (topology.geom_name(layer), topology.known_as(provider));
    let why = format!(
        "provider below {layer}, which was inserted over {known} until the next start; then the \
         name no longer exists"
    );
    let next =
        format!("Write `{known}`; to use the provider below {layer}, remove that layer first.");
    Err(Error::new(Kind::Busy, op, why).at(name).next(next))
}

/// Providers that an error names beside the one that is missing; further ones are left out.
const OTHERS_MAX: usize = 4;

/// The error for a missing provider; it lists the existing providers of the class as candidates.
pub fn no_provider(topology: &Topology, op: &str, name: &str) -> Error {
    let error = Error::new(Kind::NotFound, op, "no such provider").at(name);
    let look = "Run `ashlar list` to see the providers, and why one is missing.";
    let Some((class, _)) = name.split_once('/') else { return error.next(look) };
    let ours = topology.class_view(class, 0);
    let all = ours.iter().flat_map(|g| g.providers.iter().map(|p| p.name.as_str()));
    let others: Vec<&str> = all.take(OTHERS_MAX).collect();
    match others.is_empty() {
        true => error.next(look),
        false => error.next(format!("Providers of {class}: {}. {look}", others.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_names_its_object_once() {
        let text = |at: &str, what: &str| {
            from_geom("cam cmd", at, geom::Error::new(Errno::Io, what)).to_string()
        };
        assert!(text("da0", "da0: timed out").contains(": cam cmd: da0: timed out\n"));
        assert!(text("da0", "da0 is reserved").contains(": da0: da0 is reserved\n"));
        assert!(text("da0", "da01: timed out").contains(": da0: da01: timed out\n"));
        assert!(text("", "timed out").contains(": cam cmd: timed out\n"));
    }

    /// Names of labels are those of media.
    #[test]
    fn command_of_a_refused_loss_quotes_names() {
        let names = ["d0", "label/a; reboot"].map(str::to_owned).to_vec();
        let lost = geom::Error::new(Errno::Exist, "they hold data").destroying(names);
        let error = from_geom("part create", "d0", lost);
        assert_eq!(error.kind, Kind::WouldDestroy);
        let flags = "--yes-destroy d0 --yes-destroy 'label/a; reboot'";
        assert!(error.next.is_some_and(|next| next.contains(flags)));
    }

    #[test]
    fn every_errno_has_a_kind_and_none_is_internal() {
        for &e in Errno::ALL {
            assert_ne!(kind_of(e), Kind::Internal, "{e}");
        }
    }
}
