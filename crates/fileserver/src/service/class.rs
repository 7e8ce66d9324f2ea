//! The class `fs`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bio::Errno;
use geom::{
    Create, Error, GeomId, GraphControl, Local, ProviderId, Settings, TasteOutcome, Taster,
    Topology, Typed, Unfinished, VerbSpec,
};
use serde_json::{Value, json};
use wire::portal::listeners_overlap;

use super::geom::FsGeom;
use super::leaves::{leaves, provider, worm_devices};
use super::params::FsParams;
use super::readers::{FileServers, no_server};
use super::shared::{Edit, Phase, Progress};
use super::volume_history::VolumeHistory;
use crate::config::Device;
use crate::console;
use crate::volume::Label;

/// Its name.
pub const FS_CLASS: &str = "fs";
/// Bytes of a label, and of the smallest block.
const HEAD: usize = 4096;
/// Effect of an edit of a listener.
const LISTENER: &str = "live; sessions continue, a removed address accepts no logins";
/// Effect of an edit that sessions do not notice.
const NEW_LOGINS: &str = "new logins only";
/// Time that a verb may take before its progress is reported instead.
const PROGRESS_AFTER: Duration = Duration::from_millis(20);

/// Time that an edit may take.
const EDIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The properties of the machine that a file server needs.
#[derive(Clone)]
pub struct Site {
    /// Wall clock, ns since 1970.
    pub clock: fn() -> u64,
    /// The machine's name, which shows another server's operator the owner of the WORM.
    pub machine: String,
    /// Which file systems were served here before.
    pub history: Arc<dyn VolumeHistory>,
}

/// The class.
pub struct FsClass {
    site: Site,
    servers: FileServers,
}

impl FsClass {
    /// For file servers of this machine.
    pub fn new(site: Site) -> FsClass {
        FsClass { site, servers: FileServers::default() }
    }

    /// The same, whose file servers are added to `servers`.
    pub fn listed_in(self, servers: FileServers) -> FsClass {
        FsClass { servers, ..self }
    }

    /// Its verbs.
    pub fn specs() -> &'static [VerbSpec] {
        console::specs()
    }

    /// One sentence.
    pub const DOC: &'static str = "9P file server on a cached WORM with permanent daily dumps.";

    /// Reads the certificates and keys of a file server again. Connected clients continue.
    ///
    /// # Errors
    /// There is no such file server, or its files cannot be used; nothing has changed then.
    pub fn reload_keys(t: &mut Topology, name: &str) -> Result<(), Error> {
        let geom = t.find_geom(FS_CLASS, name);
        let shared = geom.and_then(|geom| t.with(geom, |g: &mut FsGeom, _| g.shared.clone()));
        let none = || Error::new(Errno::NoEnt, format!("there is no file server {name}"));
        shared.ok_or_else(none)?.read_keys()
    }

    /// Refuses a section whose certificates or keys cannot be used. Reads their files.
    ///
    /// # Errors
    /// `Inval`: the file, and the problem with it.
    pub fn check_files(params: &Value) -> Result<(), Error> {
        FsParams::read(params)?.keys().map(drop)
    }

    /// Inet addresses at which a file server with the second parameters listens, and that no
    /// listener of one with the first parameters covers.
    pub fn added_addresses(from: &Value, to: &Value) -> Vec<SocketAddr> {
        let of = |params: &Value| {
            FsParams::read(params).map(|params| params.inet_addresses()).unwrap_or_default()
        };
        let was = of(from);
        let is_new = |at: &SocketAddr| !was.iter().any(|was| listeners_overlap(*was, *at));
        of(to).into_iter().filter(is_new).collect()
    }

    /// Whether a file server has ended, so that its devices can be made anew.
    pub fn is_idle(t: &mut Topology, name: &str) -> bool {
        let geom = t.find_geom(FS_CLASS, name);
        let shared = geom.and_then(|geom| t.with(geom, |g: &mut FsGeom, _| g.shared.clone()));
        shared.is_some_and(|s| matches!(s.status().phase, Phase::Refused(..) | Phase::Halted))
    }

    /// Refuses to make a file server anew, on the cache device that it has and with another number
    /// of devices of the WORM. It would not open. One that does not serve may have been declared
    /// with a wrong number, which is corrected so.
    ///
    /// # Errors
    /// `NotSup`: the numbers differ.
    pub fn check_remake(t: &mut Topology, name: &str, to: &[String]) -> Result<(), Error> {
        let geom = t.find_geom(FS_CLASS, name);
        let shared = geom.and_then(|geom| t.with(geom, |g: &mut FsGeom, _| g.shared.clone()));
        let Some(shared) = shared else { return Ok(()) };
        // A mirror is one device of an image with any number of members.
        if shared.params().image || shared.status().phase != Phase::Serving {
            return Ok(());
        }
        let cache = to.first().and_then(|cache| t.find(cache));
        let now = leaves(&shared.device).first().and_then(|disk| provider(t, disk).ok());
        let (was, is) = (worm_devices(&shared.device), to.len().saturating_sub(1));
        if cache.is_none() || cache != now || was == is {
            return Ok(());
        }
        let what = format!(
            "{name}: the file system keeps the number of WORM devices that it was made with, \
             {was}, and `members` names {is} after the cache device; `ashlar fs replace {name} \
             DEVICE` renews one of them; to discard the contents and make a new file system, \
             `ashlar fs halt {name}`, `ashlar apply`, `ashlar fs ream {name} --force`"
        );
        Err(Error::new(Errno::NotSup, what))
    }

    /// All file servers make their data durable and release their devices, within one deadline: for
    /// the end of the daemon.
    pub fn halt_all(control: &mut GraphControl) {
        let all: Vec<GeomId> = {
            let view = control.topology.view(0);
            view.iter().filter(|g| g.class == FS_CLASS && !g.withering).map(|g| g.id).collect()
        };
        // A server that does not end in time is as after a loss of power.
        let _ = control.call(|t| {
            for geom in all {
                t.with(geom, |g: &mut FsGeom, t| g.halt(t, geom));
            }
            Ok(())
        });
    }
}

impl Typed for FsClass {
    const NAME: &'static str = FS_CLASS;
    const DOC: &'static str = FsClass::DOC;
    /// A device of the WORM that was away is taken in again.
    const TASTES: bool = true;
    const OPENS_MEMBERS: bool = true;
    const LISTEN_KEYS: &'static [&'static str] =
        &["linux", "plan9", "linux_tls", "plan9_tls", "console"];
    const EDITS: &'static [(&'static str, &'static str)] = &[
        ("console", LISTENER),
        ("linux", LISTENER),
        ("linux_tls", LISTENER),
        ("plan9", LISTENER),
        ("plan9_tls", LISTENER),
        ("connections_per_peer", NEW_LOGINS),
        ("everybody", NEW_LOGINS),
        ("noattach", NEW_LOGINS),
        ("nonone", NEW_LOGINS),
        ("tls_certificate", NEW_LOGINS),
        ("tls_client_ca", NEW_LOGINS),
        ("tls_key", NEW_LOGINS),
        ("create", "none on a file system that exists"),
    ];
    type Params = FsParams;
    /// The number of the WORM that a device is of.
    type Claim = u64;
    type Geom = FsGeom;

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome<u64>> {
        Box::pin(async move {
            let head = match disk.read(0, HEAD).await {
                Ok(head) => head,
                Err(e) => return TasteOutcome::No(format!("cannot be read: {}", e.text())),
            };
            match Label::decode(&head) {
                Ok(label) => {
                    let why = format!("a device of the WORM {:016x}", label.volume);
                    TasteOutcome::Yes(why, label.volume)
                }
                Err(why) => TasteOutcome::No(format!("no device of a WORM: {why}")),
            }
        })
    }

    fn claim(&self, t: &mut Topology, on: ProviderId, _: &str, volume: u64) -> Result<(), Error> {
        let all: Vec<GeomId> = {
            let view = t.view(0);
            view.iter().filter(|g| g.class == FS_CLASS && !g.withering).map(|g| g.id).collect()
        };
        for geom in all {
            let taken = t.with(geom, |g: &mut FsGeom, t| g.rejoin(t, geom, on, volume));
            if taken.transpose()? == Some(true) {
                return Ok(());
            }
        }
        Err(Error::new(Errno::NoEnt, "no file server here has lost that device"))
    }

    fn settings(&self, params: &FsParams) -> Result<Settings, Error> {
        Ok(params.settings())
    }

    /// A file of the configuration that is missing is waited for, as at a start.
    fn apply_settings(
        &self,
        control: &mut GraphControl,
        name: &str,
        params: &FsParams,
    ) -> Result<(), Error> {
        let geom = geom::named(&control.topology, FS_CLASS, name)?;
        let shared = control.topology.with(geom, |g: &mut FsGeom, _| g.shared.clone());
        let shared =
            shared.ok_or_else(|| Error::new(Errno::NxIo, format!("{name} is being removed")))?;
        let edit = Edit { params: params.clone(), keys: params.keys()? };
        let number = shared.submit_edit(edit);
        control.wait_until(EDIT_TIMEOUT, |_| shared.is_done(number));
        let Some(done) = shared.give_up(number) else {
            let what = format!(
                "{name}: the edit of its section has not ended ({} s, the limit); next: \
                 `ashlar status` shows whether a disk hangs, then `ashlar apply` again",
                EDIT_TIMEOUT.as_secs()
            );
            return Err(Error::new(Errno::TimedOut, what));
        };
        done?;
        control.settle()
    }

    /// A disk of the config string.
    fn missing(&self, t: &Topology, params: &FsParams) -> Option<String> {
        let device = params.device().ok().flatten()?;
        let is_missing = |disk: &&&Device| provider(t, disk).is_err_and(|e| e.kind == Errno::NoEnt);
        leaves(&device).iter().find(is_missing).map(ToString::to_string)
    }

    fn create(&self, t: &mut Topology, request: &Create<'_, FsParams>) -> Result<GeomId, Error> {
        let geom = FsGeom::create(t, request, self.site.clone())?;
        t.with(geom, |g: &mut FsGeom, _| self.servers.add(&g.shared));
        Ok(geom)
    }

    fn disassemble(&self, t: &mut Topology, geom: GeomId) {
        // One that is going halts already.
        t.with(geom, |g: &mut FsGeom, t| g.halt(t, geom));
    }

    fn verbs() -> &'static [VerbSpec] {
        console::specs()
    }

    fn read(params: &Value) -> Result<FsParams, Error> {
        FsParams::read(params)
    }

    fn verb(
        &self,
        control: &mut GraphControl,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, Error> {
        let name = on.strip_prefix("fs/").unwrap_or(on);
        let geom = control.topology.find_geom(FS_CLASS, name).ok_or_else(|| no_server(name))?;
        let shared = control.topology.with(geom, |g: &mut FsGeom, _| g.shared.clone());
        let shared =
            shared.ok_or_else(|| Error::new(Errno::NxIo, format!("{name} is being removed")))?;
        let number = match params.get("ticket").and_then(Value::as_u64) {
            Some(number) => number,
            None if !console::specs().iter().any(|v| v.name == verb) => {
                let names: Vec<&str> = console::specs().iter().map(|v| v.name).collect();
                let what = format!("fs has no verb {verb}; {}", names.join(", "));
                return Err(Error::new(Errno::NotSup, what));
            }
            None => {
                if let (true, Some(device)) = (verb == console::REPLACE, params.get("device")) {
                    let device = device.as_str().unwrap_or("");
                    let retaken = control
                        .topology
                        .with(geom, |g: &mut FsGeom, t| g.open_replacement(t, geom, device));
                    retaken.transpose()?;
                }
                shared.submit_verb(verb, params)
            }
        };
        control.wait_until(PROGRESS_AFTER, |_| shared.is_done(number));
        match shared.take_result(number) {
            Some(Ok(done)) => done,
            Some(Err(Progress { activity, done, total })) => {
                let what = if activity.is_empty() { format!("{verb} {name}") } else { activity };
                let again = json!({ "name": name, "ticket": number });
                Ok(Unfinished { what, done, total, again, ..Unfinished::default() }.to_value())
            }
            None => Err(Error::new(Errno::Canceled, format!("{verb}: the caller no longer waits"))),
        }
    }
}
