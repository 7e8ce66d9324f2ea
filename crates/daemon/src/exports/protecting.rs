//! Guard of protection information, which is not made over existing data without consent. A plan
//! asks for the provider's name. A start cannot ask, and no consent can be given for a disk that
//! appears later.

use classes::guard;
use engine::lun;
use engine::state_store::RecordKind as Record;
use engine::{PROTECTION_MAGIC, ProtectionSpec};
use geom::GraphControl;
use mgmt::api::{Error, Kind, Result};

use super::Exports;

impl Exports {
    /// Refuses a unit whose protection information would be made now, over existing data at the end
    /// of its provider.
    pub(super) fn may_protect(
        &self,
        control: &mut GraphControl,
        name: &str,
        (serial, protection): (&str, ProtectionSpec),
    ) -> Result<()> {
        if protection == ProtectionSpec::Off
            || !self.may_fail(name)
            || self.consent.iter().any(|given| given == name)
        {
            return Ok(());
        }
        // Of a provider that has grown since the record says where it is.
        let kept = self.registry.state_store().load(serial, Record::Protection);
        if kept.is_ok_and(|record| record.is_some_and(|bytes| !bytes.is_empty()))
            || guard::ends_with(control, lun::CLASS, name, PROTECTION_MAGIC).is_ok_and(|is| is)
        {
            return Ok(());
        }
        let by = guard::Requester { class: lun::CLASS, geom: name, force: false };
        let Ok(Some(held)) = guard::holds(control, by, name) else { return Ok(()) };
        let why = format!("contains {held}, and protection information would overwrite its end");
        let next = format!(
            "Remove `protection` from its [[unit]] and run `ashlar apply`; to lose the contents \
             instead, restore the key and run `ashlar apply --yes-destroy {name}`."
        );
        Err(Error::new(Kind::WouldDestroy, "export", why).at(name).next(next))
    }
}
