//! Change of a geom's name while it is in use.
//!
//! ```text
//!   d0 --part--> d0p1 --part--> d0p1s1        rename d0 to data
//!      \--lun d0      \--lun d0p1             all of them begin with `data` then
//!      \--mirror gm0 (a name of its own: as it was)
//! ```
//!
//! Invariants
//!  R1  All names change or none: each new one is free before the first is given.
//!  R2  A name that was given by hand, or is in a record on a disk, stays. Only geoms of a class
//!      that names them after their providers follow
//!      ([`Class::is_named_after_provider`](crate::Class)).
//!  R3  No request, no count and no edge is touched; nothing is tasted again. Cores receive the
//!      nodes anew, unchanged.

use bio::Errno;

use super::{GeomId, NAME_MAX, ProviderId, Topology};
use crate::error::Error;

/// Objects to rename, with their new names.
#[derive(Default)]
struct Renames {
    geoms: Vec<(GeomId, String)>,
    providers: Vec<(ProviderId, String)>,
}

impl Topology {
    /// Renames geom `name` of a class, which offers a provider of its own name, to `to`, together
    /// with all objects that are named after it. Returns the old and new names of providers.
    ///
    /// # Errors
    /// `NoEnt`: there is no such geom. `Exist`: one of the new names is taken. `Inval`: one is
    /// empty or too long. Nothing has changed then.
    pub fn rename(
        &mut self,
        class: &str,
        name: &str,
        to: &str,
    ) -> Result<Vec<(String, String)>, Error> {
        let geom = self.find_geom(class, name);
        let (Some(geom), Some(provider)) = (geom, self.find(name)) else {
            return Err(Error::new(Errno::NoEnt, format!("no {class} {name}")));
        };
        if !self.is_based_on(provider, geom) {
            let what = format!("{name} is a provider of another geom than {class} {name}");
            return Err(Error::inval(what));
        }
        let mut all = Renames { geoms: vec![(geom, to.to_owned())], ..Renames::default() };
        self.collect_renames(provider, to, &mut all);
        self.check_renames(&all)?;
        Ok(self.apply_renames(all))
    }

    /// Collects the objects that are named after a provider that will be called `to`.
    fn collect_renames(&self, provider: ProviderId, to: &str, all: &mut Renames) {
        let Some(p) = self.providers.get(provider) else { return };
        all.providers.push((provider, to.to_owned()));
        let above = p.consumers.iter().filter_map(|c| self.consumers.get(*c)).map(|c| c.geom);
        for id in above {
            let Some(geom) = self.geoms.get(id).filter(|g| g.name == p.name && !g.wither) else {
                continue;
            };
            if !self.classes.get(geom.class).is_some_and(|class| class.is_named_after_provider()) {
                continue;
            }
            all.geoms.push((id, to.to_owned()));
            for q in &geom.providers {
                let name = self.provider_name(*q);
                if let Some(rest) = name.strip_prefix(p.name.as_str()) {
                    self.collect_renames(*q, &format!("{to}{rest}"), all);
                }
            }
        }
    }

    /// R1
    fn check_renames(&self, all: &Renames) -> Result<(), Error> {
        for (id, to) in &all.providers {
            if to.is_empty() || to.len() > NAME_MAX {
                return Err(Error::inval(format!("name {to:?} is empty or too long")));
            }
            if self.names.get(to).is_some_and(|other| other != id) {
                return Err(Error::new(Errno::Exist, format!("a provider {to} exists already")));
            }
        }
        for (id, to) in &all.geoms {
            let Some(geom) = self.geoms.get(*id) else { continue };
            let names = self.geom_names.get(geom.class);
            if names.and_then(|names| names.get(to)).is_some_and(|other| other != id) {
                let class = self.classes.get(geom.class).map_or("geom", |c| c.name());
                return Err(Error::new(Errno::Exist, format!("{class} {to} exists already")));
            }
        }
        Ok(())
    }

    fn apply_renames(&mut self, all: Renames) -> Vec<(String, String)> {
        for (id, to) in &all.geoms {
            let Some(geom) = self.geoms.get_mut(*id) else { continue };
            let was = std::mem::replace(&mut geom.name, to.clone());
            if let Some(names) = self.geom_names.get_mut(geom.class) {
                names.remove(&was);
                names.insert(to.clone(), *id);
            }
        }
        let mut renamed = Vec::with_capacity(all.providers.len());
        for (id, to) in all.providers {
            let Some(provider) = self.providers.get_mut(id) else { continue };
            let was = std::mem::replace(&mut provider.name, to.clone());
            let (geom, node) = (provider.geom, provider.node);
            // Lists that were made of the old names are looked at again.
            self.dirty_nodes.insert(node);
            self.names.remove(&was);
            self.names.insert(to.clone(), id);
            self.last_sizes.rename(&was, &to);
            self.with_geom(geom, |ops, _| ops.renamed(&was, &to));
            renamed.push((was, to));
        }
        self.last_sizes.save();
        renamed
    }
}
