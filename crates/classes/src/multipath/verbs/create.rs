//! `create`: paths that are named by hand.

use geom::{At, Class, Create as Request, Deserialize, Error, GraphControl, JsonSchema, Verb};
use serde_json::json;

use super::mode;
use crate::members::verb_util::ProviderAnswer;
use crate::members::{provider_access, verb_util};
use crate::multipath::NAME;
use crate::multipath::class::MultipathClass;
use crate::multipath::geom::own_serial;
use crate::shared_args::Members;

/// Join paths without a label, until the daemon stops
///
/// Paths with different sizes, serial numbers, or first or last sectors are refused.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Create {
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
}

impl Verb<MultipathClass> for Create {
    const NAME: &'static str = "create";
    const EXAMPLE: &'static str = "multipath create data d0 d1";
    type Answer = ProviderAnswer;

    fn run(self, (class, control): At<'_, MultipathClass>) -> Result<ProviderAnswer, Error> {
        let (name, names) = (self.name.as_str(), &self.members.0);
        verb_util::check_name(name)?;
        let members: Result<Vec<_>, Error> =
            names.iter().map(|member| provider_access::find(control, member)).collect();
        let members = members?;
        let mode = mode(self.active, self.passive, self.read)?.unwrap_or_default();
        check_same_disk(control, names)?;
        let params = json!({ "mode": mode.key() });
        control.call(|t| class.create(t, &Request { name, members: &members, params: &params }))?;
        verb_util::wait_for_provider(control, NAME, name, names)
    }
}

/// What a path shows of its disk.
struct PathIdentity {
    sector_bytes: u32,
    media_bytes: u64,
    serial: Option<String>,
    /// First and last sector; none if they cannot be read, as on a path that is down.
    ends: Option<(Vec<u8>, Vec<u8>)>,
}

impl PathIdentity {
    fn by(control: &mut GraphControl, member: &str) -> Result<PathIdentity, Error> {
        let on = provider_access::find(control, member)?;
        let (sector_bytes, media_bytes) = provider_access::sizes(control, on);
        let serial = own_serial(&control.topology, on);
        let ends = provider_access::with_read_access(control, NAME, member, |control, edge| {
            let (_, last) = provider_access::read_last_sector(control, member, edge)?;
            let first = provider_access::read(control, member, edge, 0, last.len())?;
            Ok((first, last))
        });
        Ok(PathIdentity { sector_bytes, media_bytes, serial, ends: ends.ok() })
    }

    /// What proves that another path leads to another disk.
    fn difference(&self, other: &PathIdentity) -> Option<String> {
        let size = |path: &PathIdentity| (path.sector_bytes, path.media_bytes);
        if size(self) != size(other) {
            return Some(format!(
                "{} bytes in sectors of {}, and {} bytes in sectors of {}",
                other.media_bytes, other.sector_bytes, self.media_bytes, self.sector_bytes
            ));
        }
        if let (Some(own), Some(theirs)) = (&self.serial, &other.serial)
            && own != theirs
        {
            return Some(format!("serial number {theirs}, and {own}"));
        }
        let ((first, last), (their_first, their_last)) =
            (self.ends.as_ref()?, other.ends.as_ref()?);
        match (first == their_first, last == their_last) {
            (true, true) => None,
            (false, _) => Some("their first sectors differ".to_owned()),
            (true, false) => Some("their last sectors differ".to_owned()),
        }
    }
}

/// Refuses paths that lead to different disks: writes would be spread over both, and both
/// would lose data. Without a label only their identification differs.
pub(in crate::multipath) fn check_same_disk(
    control: &mut GraphControl,
    members: &[String],
) -> Result<(), Error> {
    // One path is of one disk, and nothing needs to be read for it.
    let Some((first, others)) = members.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return Ok(());
    };
    let one = PathIdentity::by(control, first)?;
    for member in others {
        let other = PathIdentity::by(control, member)?;
        if let Some(what) = one.difference(&other) {
            return Err(Error::inval(format!(
                "{member} leads to another disk than {first}: {what}. Nothing was changed; \
                 `ashlar list` shows the disks"
            )));
        }
    }
    Ok(())
}
