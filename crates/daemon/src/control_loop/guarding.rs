//! Guard against overwriting: the content of providers is checked before a verb of a class or a
//! plan writes over it.

use std::sync::Arc;

use classes::guard;
use disks::{DISK_CLASS, check_resize};
use fileserver::{FS_CLASS, FsClass};
use geom::Class;
use mgmt::api::{Error, Kind, Result};
use mgmt::config::GeomConfig;
use mgmt::config::units::exact;
use serde_json::Value;

use super::ControlLoop;
use crate::errors::from_geom;
use crate::geom_layouts::{GeomLayout, Member};

impl ControlLoop {
    /// The data on a geom's members that would be lost if the geom were made now.
    pub(super) fn data_lost(&mut self, geom: &GeomConfig) -> Option<String> {
        if let Some(why) = self.layout_conflict(geom) {
            return Some(why);
        }
        if let Some(held) = self.overwritten_data(geom) {
            return Some(format!("{held}: it is overwritten"));
        }
        if let Some(why) = self.replacement_conflict(geom) {
            return Some(why);
        }
        let class = self.control.topology.class(&geom.class)?;
        if !class.keeps_records() || self.stays_found(geom) {
            return None;
        }
        let by = guard::Requester { class: &geom.class, geom: &geom.name, force: false };
        if self.images.values().any(|image| image.is_member(by)) {
            // It is found by its records when the disks are there.
            return None;
        }
        let held = self.data_held(geom, by)?;
        Some(format!("{held}: it is overwritten"))
    }

    /// The data on a geom's members, in words.
    pub(super) fn data_held(
        &mut self,
        geom: &GeomConfig,
        by: guard::Requester<'_>,
    ) -> Option<String> {
        let mut held = Vec::new();
        for name in geom.provider_names() {
            // A provider of that name may be a disk that the plan exchanges.
            let holds = match self.images.get(name) {
                Some(image) => image.contents(by),
                None => guard::held(&mut self.control, by, name),
            };
            held.extend(holds.map(|what| format!("{name} holds {what}")));
        }
        (!held.is_empty()).then(|| held.join("; "))
    }

    /// The data on providers whose end is to be overwritten, in words.
    pub(super) fn data_at_ends(&mut self, names: &[String]) -> Option<String> {
        let by = guard::Requester { class: "", geom: "", force: false };
        let held = names.iter().filter_map(|name| {
            self.control.topology.find(name)?;
            let words = guard::held(&mut self.control, by, name)?;
            Some(format!("{name} holds {words}"))
        });
        let held: Vec<String> = held.collect();
        (!held.is_empty()).then(|| format!("{}: its end is overwritten", held.join("; ")))
    }

    /// How a geom of the configuration is put together, if only the configuration defines that.
    pub(super) fn layout_of(&self, geom: &GeomConfig) -> Option<GeomLayout> {
        self.layout_with_size(geom, None)
    }

    /// The same, as if a disk had so many bytes.
    fn layout_with_size(&self, geom: &GeomConfig, disk: Option<(&str, u64)>) -> Option<GeomLayout> {
        let topology = &self.control.topology;
        let now = |name: &str| {
            let limits = || topology.find(name).and_then(|p| topology.limits(p));
            let here = || limits().map_or(0, |limits| limits.media_bytes);
            self.images.get(name).map_or_else(here, |image| image.bytes)
        };
        let size = |name: &str| match disk {
            Some((disk, bytes)) if disk == name => bytes,
            _ => now(name),
        };
        let bytes: Vec<u64> = geom.provider_names().map(size).collect();
        let class = topology.class(&geom.class)?;
        let layout = class.layout(&Value::Object(geom.params.clone()), &bytes)?;
        Some(GeomLayout { layout, members: self.current_members(geom) })
    }

    /// Refuses to make a disk smaller, and to make one larger whose size decides where the bytes of
    /// a geom above it are. The next start would not make that geom (W1 of `geom_layouts`).
    pub(super) fn may_grow(&self, disk: &str, bytes: u64) -> Result<()> {
        let topology = &self.control.topology;
        let geom = topology.find_geom(DISK_CLASS, disk);
        let provider = geom.and_then(|geom| topology.providers_of(geom).first().copied());
        if let Some(limits) = provider.and_then(|provider| topology.limits(provider)) {
            let has = (limits.media_bytes, limits.sector_bytes);
            check_resize(disk, has, bytes).map_err(|e| {
                let has = exact(limits.media_bytes);
                from_geom("resize disk", disk, e).next(format!(
                    "In ashlar.toml: size = \"{has}\", or no `size`. For a smaller disk, make \
                     another one and copy the data."
                ))
            })?;
        }
        let config = self.config();
        let above =
            config.geom.iter().filter(|geom| geom.provider_names().any(|name| name == disk));
        for geom in above {
            let whole = self.layout_with_size(geom, Some((disk, bytes)));
            let differs = |now| self.layouts.differs(&geom.class, &geom.name, &now);
            let Some(why) = whole.and_then(differs) else { continue };
            let why = format!("its bytes in {} {} would move: {why}", geom.class, geom.name);
            let next = "Make its last member larger, or append a disk to `members`.";
            return Err(Error::new(Kind::Unsupported, "grow disk", why).at(disk).next(next));
        }
        Ok(())
    }

    /// Why a geom that is found by its records would be made anew in the place of another
    /// (W5 of `geom_layouts`).
    pub(super) fn replacement_conflict(&mut self, geom: &GeomConfig) -> Option<String> {
        let class = self.control.topology.class(&geom.class)?;
        // An error shows again when the geom is made.
        if !class.keeps_records() || self.control.settle().is_err() {
            return None;
        }
        let topology = &self.control.topology;
        let is_known = |name| topology.find(name).is_some() || self.images.contains_key(name);
        // Other members that a step ahead of it makes are looked at when it is carried out.
        if self.stays_found(geom) || !geom.provider_names().all(is_known) {
            return None;
        }
        let by = guard::Requester { class: &geom.class, geom: &geom.name, force: false };
        if self.images.values().any(|image| image.is_member(by)) {
            // It is found by its records when the disks are there.
            return None;
        }
        let was =
            self.layouts.lost_members(&geom.class, &geom.name, &self.current_members(geom))?;
        Some(format!("members were {was}, and none of them is named: {} would be empty", geom.name))
    }

    /// The providers below a geom.
    pub(super) fn providers_of(&self, class: &str, name: &str) -> Vec<String> {
        let topology = &self.control.topology;
        let geom = topology.find_geom(class, name);
        let consumers = geom.into_iter().flat_map(|geom| topology.consumers_of(geom)).rev();
        let below = consumers.filter_map(|consumer| topology.below(*consumer));
        below.map(|provider| topology.provider_name(provider).to_owned()).collect()
    }

    /// Whether a geom is there and would be found again by the records of a member that the plan
    /// does not exchange. One that an earlier step removes is found by the members that are named.
    fn stays_found(&self, geom: &GeomConfig) -> bool {
        let has = self.providers_of(&geom.class, &geom.name);
        let stays =
            |name: &str| !self.images.contains_key(name) && has.iter().any(|member| member == name);
        self.control.topology.find_geom(&geom.class, &geom.name).is_some()
            && (self.images.is_empty() && !self.is_remade || geom.provider_names().any(stays))
    }

    /// The members that a section names, as they are now, or as the plan makes them.
    fn current_members(&self, geom: &GeomConfig) -> Vec<Member> {
        let member = |name: &str| match self.images.get(name) {
            Some(image) => Member { name: name.to_owned(), ident: image.ident.clone() },
            None => Member::of(&self.control.topology, name),
        };
        geom.provider_names().map(member).collect()
    }

    /// Keeps which members a geom has that is found by its records. One that its section names and
    /// that is none of them is not kept.
    pub(super) fn keep_members(&mut self, geom: &GeomConfig) {
        let class = self.control.topology.class(&geom.class);
        if class.is_some_and(|class| class.keeps_records()) {
            let has = self.providers_of(&geom.class, &geom.name);
            let mut members = self.current_members(geom);
            let is_there = |name: &str| self.control.topology.find(name).is_some();
            members.retain(|member| has.contains(&member.name) || !is_there(&member.name));
            let layout = GeomLayout { layout: "records".to_owned(), members };
            self.layouts.record(&mut self.control, (&geom.class, &geom.name), layout);
        }
    }

    /// A verb may have given a geom of the configuration further members. A start that does not
    /// name them would show other bytes (W1 of `geom_layouts`).
    pub(super) fn keep_more_members(&mut self, class: &str, on: &str) {
        let found = self.control.topology.class(class);
        if found.is_none_or(|class| class.layout(&Value::Null, &[]).is_none()) {
            return;
        }
        let name = on.strip_prefix(class).and_then(|rest| rest.strip_prefix('/')).unwrap_or(on);
        let (config, members) = (self.config(), self.providers_of(class, name));
        let geom = config.geom.iter().find(|geom| geom.class == class && geom.name == name);
        let Some(geom) = geom.filter(|geom| geom.provider_names().count() < members.len()) else {
            return;
        };
        if geom.provider_names().any(|name| !members.iter().any(|member| member == name)) {
            return;
        }
        let now = GeomConfig { members, provider: None, ..geom.clone() };
        if let Some(whole) = self.layout_of(&now) {
            self.layouts.record(&mut self.control, (class, name), whole);
        }
    }

    /// Why a geom would show other bytes than before, or why no record defines how the data on its
    /// members belongs together (W1 of `geom_layouts`).
    pub(super) fn layout_conflict(&mut self, geom: &GeomConfig) -> Option<String> {
        let whole = self.layout_of(geom)?;
        let is_known =
            |name| self.control.topology.find(name).is_some() || self.images.contains_key(name);
        // Other members that a step ahead of it makes are looked at when it is carried out.
        if !geom.provider_names().all(is_known) {
            return None;
        }
        if self.layouts.has_record(&geom.class, &geom.name) {
            let differs = self.layouts.differs(&geom.class, &geom.name, &whole)?;
            return self.appended(geom).map_or(Some(differs), |added| {
                let by = guard::Requester { class: &geom.class, geom: &geom.name, force: false };
                let held = self.data_held(&added, by)?;
                Some(format!("{held}, and is appended to {}", geom.name))
            });
        }
        let inherits = self.layouts.inherits() && self.exports.is_starting();
        if whole.members.len() < 2 || inherits {
            return None;
        }
        let by = guard::Requester { class: &geom.class, geom: &geom.name, force: false };
        let held = self.data_held(geom, by)?;
        Some(format!("{held}, and the former layout of {} is not recorded", geom.name))
    }

    /// The members that a section has at the end of those that its geom was made of, as a section.
    /// None if the members before them are others, or the bytes in them would move.
    fn appended(&self, geom: &GeomConfig) -> Option<GeomConfig> {
        let count = self.layouts.count(&geom.class, &geom.name)?;
        let of = |members: &[String]| GeomConfig { members: members.to_vec(), ..geom.clone() };
        let (was, added) = (of(geom.members.get(..count)?), of(geom.members.get(count..)?));
        let class = self.control.topology.class(&geom.class)?;
        let same = self.layouts.differs(&geom.class, &geom.name, &self.layout_of(&was)?).is_none();
        (same && class.can_replace_members(&was.members, &geom.members)).then_some(added)
    }

    /// Devices of a file server that a verb makes anew, which the server itself has open.
    fn devices(&mut self, class: &str, verb: &str, on: &str, params: &Value) -> Vec<String> {
        // A question how far it is.
        if class != FS_CLASS || params.get("ticket").is_some() {
            return Vec::new();
        }
        let topology = &mut self.control.topology;
        match verb {
            "ream" => {
                let name = on.strip_prefix("fs/").unwrap_or(on);
                // One that serves is refused by the class, with any consent.
                if !FsClass::is_idle(topology, name) {
                    return Vec::new();
                }
                let geoms = topology.class_view(FS_CLASS, 0);
                let geom = geoms.into_iter().find(|g| g.name == name);
                let below = geom.into_iter().flat_map(|g| g.consumers);
                below.filter_map(|consumer| consumer.provider).collect()
            }
            "replace" => {
                let device = params.get("device").and_then(Value::as_str);
                device
                    .filter(|d| topology.find(d).is_some())
                    .map(str::to_owned)
                    .into_iter()
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// The data on the devices of a file server that would be made by itself, if none of them
    /// belongs to a file server yet.
    pub(super) fn overwritten_data(&mut self, geom: &GeomConfig) -> Option<String> {
        if geom.class != FS_CLASS || geom.params.get("create") != Some(&Value::Bool(true)) {
            return None;
        }
        let is_served = |name: &str| match self.images.get(name) {
            Some(image) => image.has_record(FS_CLASS),
            None => guard::carries(&mut self.control, FS_CLASS, name),
        };
        if geom.provider_names().any(is_served) {
            return None;
        }
        let by = guard::Requester { class: FS_CLASS, geom: &geom.name, force: false };
        self.data_held(geom, by)
    }

    /// Calls the class, if the data that the verb would overwrite may be lost.
    pub(super) fn call_guarded(
        &mut self,
        class: &Arc<dyn Class>,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> std::result::Result<Value, geom::Error> {
        let spec = class.verbs().iter().find(|spec| spec.name == verb);
        let takes = spec.map(|spec| spec.overwritten_providers(params)).unwrap_or_default();
        let devices = self.devices(class.name(), verb, on, params);
        if takes.is_empty() && devices.is_empty() {
            return class.verb(&mut self.control, verb, on, params);
        }
        let mut params = params.clone();
        let given = params.as_object_mut().and_then(|all| all.remove("yes_destroy"));
        let given = given.map(serde_json::from_value).transpose();
        let consent: Vec<String> =
            given.map_err(|e| geom::Error::inval(format!("yes_destroy: {e}")))?.unwrap_or_default();
        let force = params.get("force") == Some(&Value::Bool(true));
        let by = guard::Requester { class: class.name(), geom: on, force };
        guard::check(&mut self.control, by, &takes, &consent)?;
        guard::check_own(&mut self.control, by, &devices, &consent)?;
        if let Some(all) = params.as_object_mut().filter(|_| !consent.is_empty()) {
            // The class must not require consent again.
            all.insert("force".into(), true.into());
        }
        class.verb(&mut self.control, verb, on, &params)
    }
}
