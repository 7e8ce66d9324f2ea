//! Verbs that are the same in every class whose members have labels: `stop`, `destroy`, `clear`,
//! `dump`; and `start`, `relocate` where the labels are in last sectors.

use geom::{At, Bytes, Class, Deserialize, Error, GraphControl, JsonSchema, MessageAnswer, Verb};
use serde::Serialize;

use super::frame::FrameError;
use super::relocate::{self, MovableLabel, RelocateAnswer, RelocateParams};
use super::{Stopped, verb_util};
use crate::shared_args::{Force, Members, each};

/// A class whose members carry labels.
pub(crate) trait LabelledClass: Class + Sized + 'static {
    /// What `stop` does besides, for the manual.
    const STOPPED: &'static str = "";
    /// One sentence of `destroy`, and whether it writes.
    const DESTROY: (&'static str, bool) = ("Stop geoms: the same as `stop`", false);

    /// The content of labels, as `dump` answers it.
    type Records: Serialize + JsonSchema;

    /// Takes one apart; labels stay.
    fn take_apart(
        &self,
        control: &mut GraphControl,
        on: &str,
        force: bool,
    ) -> Result<MessageAnswer, Error>;

    /// Takes one apart for good, where that is something else.
    fn destroy_geom(
        &self,
        control: &mut GraphControl,
        on: &str,
        force: bool,
    ) -> Result<MessageAnswer, Error> {
        self.take_apart(control, on, force)
    }

    /// Removes the labels of members; a provider without one is refused.
    fn clear(control: &mut GraphControl, members: &[String]) -> Result<MessageAnswer, Error>;

    /// Shows the content of the providers' labels.
    fn dump(control: &mut GraphControl, members: &[String]) -> Result<Self::Records, Error>;
}

/// A class whose labels are in last sectors.
pub(crate) trait LastSectorClass: LabelledClass {
    /// Its name.
    const CLASS: &'static str;

    fn stopped(&self) -> &Stopped;

    /// A stopped geom is to be found again.
    fn clear_stopped(&self, _name: &str) {}

    /// A member's label, from its last sector.
    fn placed(sector: &[u8]) -> Result<MovableLabel, FrameError>;
}

/// Stop geoms; their metadata stays for `start`
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Stop {
    /// Names of the geoms, without the class
    #[schemars(length(min = 1))]
    names: Vec<String>,
    /// Stop a geom even if its provider is open
    force: Force,
}

impl<C: LabelledClass> Verb<C> for Stop {
    const NAME: &'static str = "stop";
    const DETAIL: &'static str = C::STOPPED;
    const EXAMPLE: &'static str = "stop data";
    type Answer = MessageAnswer;

    fn run(self, (class, control): At<'_, C>) -> Result<MessageAnswer, Error> {
        each("", &self.names, |on| class.take_apart(control, on, self.force.0))
    }
}

/// GEOM's other word for it.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Destroy(Stop);

impl<C: LabelledClass> Verb<C> for Destroy {
    const NAME: &'static str = "destroy";
    const DOC: &'static str = C::DESTROY.0;
    const EXAMPLE: &'static str = "destroy data";
    const WRITES: bool = C::DESTROY.1;
    type Answer = MessageAnswer;

    fn run(self, (class, control): At<'_, C>) -> Result<MessageAnswer, Error> {
        each("", &self.0.names, |on| class.destroy_geom(control, on, self.0.force.0))
    }
}

/// Find the members of a stopped geom and start it
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Start {
    /// Name of the geom, without the class
    name: String,
}

impl<C: LastSectorClass> Verb<C> for Start {
    const NAME: &'static str = "start";
    const EXAMPLE: &'static str = "start data";
    type Answer = MessageAnswer;

    fn run(self, (class, control): At<'_, C>) -> Result<MessageAnswer, Error> {
        class.clear_stopped(geom::bare_name(C::CLASS, &self.name));
        verb_util::start(control, C::CLASS, class.stopped(), &self.name)
    }
}

/// Clear the metadata of the class on providers
///
/// Only metadata of this class is cleared; a provider without it is refused.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Clear {
    /// Providers with the metadata
    members: Members,
}

impl<C: LabelledClass> Verb<C> for Clear {
    const NAME: &'static str = "clear";
    const EXAMPLE: &'static str = "clear d0 d1";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (_, control): At<'_, C>) -> Result<MessageAnswer, Error> {
        C::clear(control, &self.members.0)
    }
}

/// Show the metadata of the class on providers
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Dump {
    /// Providers with the metadata
    members: Members,
}

impl<C: LabelledClass> Verb<C> for Dump {
    const NAME: &'static str = "dump";
    const EXAMPLE: &'static str = "dump d0";
    type Answer = C::Records;

    fn run(self, (_, control): At<'_, C>) -> Result<C::Records, Error> {
        C::dump(control, &self.members.0)
    }
}

/// Move a label to the new end of a grown provider
///
/// A label is in the last sector and is searched for only there. While its geom runs, the label
/// moves when the provider grows. After a power cut, or if the provider grew while the daemon was
/// stopped, the label is found at the last end that this daemon has seen, and is moved
/// automatically. If the provider grew elsewhere, or has other data at its new end, the label is
/// not found: this verb moves it. The provider size that the label records must equal --was. Other
/// data in the last sector is overwritten only with --force.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Relocate {
    /// Provider that grew
    member: String,
    /// Previous size of the provider [default: search for the label in the last MiB]
    was: Option<Bytes>,
    /// Overwrite other data in the last sector
    force: Force,
}

impl<C: LastSectorClass> Verb<C> for Relocate {
    const NAME: &'static str = "relocate";
    const POSITIONAL: &'static [&'static str] = &["member"];
    const EXAMPLE: &'static str = "relocate d0 --was 10GiB";
    const WRITES: bool = true;
    type Answer = RelocateAnswer;

    fn run(self, (_, control): At<'_, C>) -> Result<RelocateAnswer, Error> {
        let Relocate { member, was, force } = self;
        let (was, force) = (was.map(|bytes| bytes.0), force.0);
        let params = RelocateParams {
            class: C::CLASS,
            member: &member,
            old_bytes: was,
            force,
            read: C::placed,
        };
        relocate::relocate(control, &params)
    }
}
