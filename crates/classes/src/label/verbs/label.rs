//! The `label` verb: writes a label to the last sector of a provider.

use bio::Errno;
use geom::{At, Consent, Deserialize, Error, GraphControl, JsonSchema, Verb};

use super::{LabelAnswer, LastSectorContent, find, last_sector_content};
use crate::guard;
use crate::label::class::{LabelClass, NAME, OWN_PREFIX};
use crate::label::{clean, generic};
use crate::members::provider_access;

/// Write a label that names a provider permanently
///
/// The label occupies the last sector. The provider is available as label/NAME, without that
/// sector, wherever the disk is plugged in. A provider with contents is refused unless
/// --yes-destroy PROVIDER is given.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Label {
    /// Label, 1 to 15 bytes
    name: String,
    /// Provider to label
    provider: String,
    /// Overwrite other data in the last sector
    overwrite: bool,
    yes_destroy: Consent,
}

impl Verb<LabelClass> for Label {
    const NAME: &'static str = "label";
    const POSITIONAL: &'static [&'static str] = &["name", "provider"];
    const EXAMPLE: &'static str = "label label usb d0";
    const WRITES: bool = true;
    type Answer = LabelAnswer;

    fn run(self, (_, control): At<'_, LabelClass>) -> Result<LabelAnswer, Error> {
        let name = self.provider.as_str();
        let on = find(control, name)?;
        let overwrite = self.overwrite || self.yes_destroy.0.iter().any(|given| given == name);
        let (size, len) = provider_access::sizes(control, on);
        let bad = |e: generic::LabelError| Error::inval(e.to_string());
        let (at, sector) = generic::label(&self.name, size, len).map_err(bad)?;
        let (_, zeros) = generic::clear(size, len).map_err(bad)?;
        let provider = clean(OWN_PREFIX, self.name.as_bytes()).map_err(|_| {
            let what = format!("{:?} cannot be a name; use letters and digits", self.name);
            Error::inval(what)
        })?;
        let taken = control.topology.find(&provider).and_then(|p| control.topology.geom_of(p));
        let other = taken.is_some_and(|g| crate::slice::base(&control.topology, g) != Some(on));
        if other {
            let what = format!("{provider}: the name of another provider; choose another name");
            return Err(Error::new(Errno::Exist, what));
        }
        let check = |control: &mut GraphControl, edge| {
            let found = last_sector_content(control, name, edge)?;
            if matches!(found, LastSectorContent::Other) && !overwrite {
                let what = format!(
                    "the last sector of {name} holds something else (a GPT, the end of a file \
                     system); shrink those contents, or label with overwrite"
                );
                return Err(Error::new(Errno::Exist, what));
            }
            Ok(())
        };
        if !overwrite {
            guard::check(
                control,
                guard::Requester { class: NAME, geom: name, force: false },
                &[name],
                &[],
            )?;
        }
        provider_access::with_write_access(control, NAME, name, check, |control, edge| {
            // Zeroes first, so that a reader meanwhile sees no half of two labels.
            provider_access::write(control, name, edge, at, zeros)?;
            provider_access::write(control, name, edge, at, sector)
        })?;
        Ok(LabelAnswer::new(&provider, format!("{name} labelled {provider}")))
    }
}
