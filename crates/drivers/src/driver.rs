//! Interface between the daemon and a protocol driver.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

pub use engine::Account;
use engine::{Engine, Registry};
use geom::{Error, Local};
use reactor::Address;
pub use transport::ConnectionCounts;
use wire::pattern::Naming;

/// Answer of a target to a digest that an initiator offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestPolicy {
    /// Never.
    Off,
    /// When the initiator prefers it.
    #[default]
    Allow,
    /// No login without it.
    Require,
}

/// A target port as the configuration gives it.
#[derive(Clone, Debug, Default)]
pub struct TargetSpec {
    /// Its name on the wire.
    pub name: String,
    /// Portals, as they are given to [`Driver::open_portal`].
    pub listen: Vec<Address>,
    /// Initiators must know this secret; `None` requires no proof.
    pub chap: Option<Account>,
    /// The target proves itself with this secret to initiators that require it; `None` refuses to.
    pub mutual_chap: Option<Account>,
    /// Discovery sessions must know this secret; `None` admits anyone.
    pub discovery_chap: Option<Account>,
    pub header_digest: DigestPolicy,
    pub data_digest: DigestPolicy,
    /// The driver's own, by its schema; `Null` for the defaults.
    pub params: serde_json::Value,
}

/// A protocol that initiators speak.
pub trait Driver: Send + Sync {
    /// Name in the configuration: lower case.
    fn name(&self) -> &'static str;

    /// One sentence.
    fn doc(&self) -> &'static str;

    /// JSON Schema of [`TargetSpec::params`]: an object.
    fn schema(&self) -> serde_json::Value;

    /// Whether [`Driver::set_target`] would accept the target, as far as the specification and the
    /// files named in it show. Any thread; files are read.
    fn check_target(&self, spec: TargetSpec) -> Result<(), Error>;

    /// Makes or replaces a target. The new settings apply to later logins; sessions keep their
    /// negotiated values. Nothing is changed when the name, a secret or a parameter is refused. Any
    /// thread.
    fn set_target(&self, spec: TargetSpec) -> Result<(), Error>;

    /// Forgets a target: further logins are refused. Its sessions are ended by
    /// [`Registry::remove_target`]. Any thread.
    fn remove_target(&self, name: &str);

    /// Settles on a core, once, on the core's thread and before any portal is opened there.
    fn install(self: Arc<Self>, engine: &Rc<Engine>);

    /// Listens on this core; answers the address (of interest for port 0). Other cores may listen
    /// on the same one. Opening a portal that is open answers its address.
    fn open_portal(
        self: Arc<Self>,
        engine: Rc<Engine>,
        at: Address,
    ) -> Local<'static, io::Result<Address>>;

    /// Stops listening on this core before it returns; connections stay.
    fn close_portal(&self, engine: &Rc<Engine>, at: Address);

    /// Counts of its connections, over all cores; `None` if its protocol has none. Any thread.
    fn connections(&self) -> Option<ConnectionCounts> {
        None
    }

    /// The names of its initiators.
    fn naming(&self) -> Naming {
        Naming::Plain
    }

    /// Whether sessions begin by a login; otherwise each request of a host begins its session anew.
    fn has_logins(&self) -> bool {
        true
    }

    /// Whether clients request units by name, and a unit is served under its former name.
    fn has_unit_names(&self) -> bool {
        false
    }

    /// Effects of an edit of its keys on running hosts, for the reference; `*` is any other key.
    /// A key that is not listed is used for new logins only.
    fn edits(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Itself, when its initiator is this machine.
    fn local(self: Arc<Self>) -> Option<Arc<crate::local::Local>> {
        None
    }
}

/// Every driver: one line each.
pub fn all(registry: &Arc<Registry>) -> Vec<Arc<dyn Driver>> {
    vec![
        Arc::new(crate::iscsi::Iscsi::new(registry.clone())),
        Arc::new(crate::nbd::Nbd::new(registry.clone())),
        Arc::new(crate::nvme_tcp::NvmeTcp::new(registry.clone())),
        Arc::new(crate::aoe::Aoe::new(registry.clone())),
        Arc::new(crate::local::Local::new(registry.clone())),
    ]
}
