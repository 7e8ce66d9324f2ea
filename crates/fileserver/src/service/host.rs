//! The core's side of a file server: a volume, its files and their clients.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bio::{Errno, Seg};
use geom::{Core, Error, Measure, deadline};
use jiff::tz::TimeZone;
use reactor::Reactor;
use transport::{AcceptState, PeerLimit};

use super::class::Site;
use super::clock::{self, Daily, DumpAction, TimeOfDay};
use super::copies::Copies;
use super::disks;
use super::fault_hints::next_for;
use super::listen::OpenListener;
use super::rates::{Counts, Rates};
use super::shared::{HostRequest, HostShared, Phase, Progress};
use crate::config::Device;
use crate::console;
use crate::fault::Fault;
use crate::files::{FileSystem, Served};
use crate::image;
use crate::medium::{self, Medium, Provider, ProviderPath};
use crate::ninep::trace::TraceFilter;
use crate::ninep::{ClientInfo, Server};
use crate::notify::Notify;
use crate::users::{ADM, Id, Users};
use crate::volume::{self, Dump, Options};

/// Longest time that written data waits for a commit that no client requests, ns.
const COMMIT_NS: u64 = 5_000_000_000;
/// Interval of status reports, ns.
const LOOK_NS: u64 = 1_000_000_000;

/// A disk of the config string that is open.
#[derive(Clone)]
pub struct Opened {
    /// The device of the config string.
    pub disk: Device,
    /// Its provider.
    pub name: String,
    /// The way to it.
    pub path: ProviderPath,
}

/// See the module.
pub(crate) struct Host {
    core: Rc<Core>,
    pub(super) reactor: Reactor,
    pub(crate) shared: Arc<HostShared>,
    pub(crate) server: Rc<Server>,
    pub(super) peers: Arc<PeerLimit>,
    pub(crate) zone: TimeZone,
    pub(super) listening: RefCell<Vec<OpenListener>>,
    pub(super) accept_state: Rc<AcceptState>,
    /// The user of all clients of `linux`.
    pub(super) everybody: Cell<Option<Id>>,
    pub(super) options: Options,
    /// Disks of the configuration whose file is not there yet: name and path.
    pub(super) awaited: RefCell<Vec<(String, String)>>,
    /// It serves an image.
    image: Option<image::Setup>,
    fs: RefCell<Option<Served>>,
    /// Dumps are taken by the clock.
    pub(crate) dumps_on: Cell<bool>,
    /// See [`Rates`].
    pub(crate) rates: RefCell<Rates>,
    /// See [`Copies`].
    copies: RefCell<Copies>,
    /// Moves up when it is halted: tasks of an earlier life end.
    pub(super) generation: Cell<u64>,
    /// The time of the daily dump has changed, or it is halted.
    pub(super) clock_changed: Notify,
    /// An edit of the section is carried out.
    pub(super) is_editing: Cell<bool>,
    /// An edit has ended.
    pub(super) edit_ended: Notify,
}

/// Today, as dumps have it: 20261121.
pub(crate) fn today(host: &Host) -> u32 {
    clock::day(host.wall(), &host.zone)
}

/// A moment (ns since 1970) as people write it.
pub(crate) fn format_time(host: &Host, ns: u64) -> String {
    clock::text(ns, &host.zone)
}

/// Starts one on its core; it ends on `HostRequest::Stop`.
pub fn start(core: &Rc<Core>, shared: Arc<HostShared>, disks: Vec<Opened>) {
    let (own, name) = (core.clone(), shared.name.clone());
    core.spawn_for("fs", &name, async move {
        let result = Host::new(&own, shared.clone(), &disks);
        match result {
            Ok(host) => host.run().await,
            Err(why) => {
                let next = "correct `device`, then `ashlar apply`".to_owned();
                shared.update_status(|s| s.phase = Phase::Refused(why, next));
                while !matches!(shared.next_request().await, HostRequest::Stop) {}
            }
        }
        shared.update_status(|s| s.phase = Phase::Halted);
    });
}

/// A file system was here, and its devices are blank: why none is made, and what to type.
fn missing_volume(name: &str, volume: u64) -> (String, String) {
    let number = if volume == 0 { String::new() } else { format!(" (volume {volume:016x})") };
    let why = format!(
        "devices are blank, but a file system {name}{number} was served here before; `create` does \
         not replace it"
    );
    let next = format!(
        "restore its devices (check for a folder that is not mounted or a removed image file) and \
         restart the daemon; or create a new one: `ashlar fs ream {name}`"
    );
    (why, next)
}

impl Host {
    fn new(core: &Rc<Core>, shared: Arc<HostShared>, disks: &[Opened]) -> Result<Rc<Host>, String> {
        let mut find = |disk: &Device| {
            let found = disks.iter().find(|o| o.disk == *disk);
            let o = found.ok_or_else(|| format!("{disk}: not opened"))?;
            let medium = Provider::with_path(&o.name, core.clone(), o.path.clone());
            Ok(Rc::new(medium) as Rc<dyn Medium>)
        };
        let params = shared.params();
        let (block, image) = (params.block(), params.image()?);
        let (stand, once) = match image {
            Some(_) => medium::image_devices(&shared.device, &mut find)?,
            None => (medium::volume_devices(&shared.device, block, &mut find)?, false),
        };
        let image = image.map(|setup| image::Setup { once, ..setup });
        let reactor = core.reactor().clone();
        let mut owner = [0; 16];
        for half in owner.chunks_exact_mut(8) {
            half.copy_from_slice(&reactor.random().to_le_bytes());
        }
        let Site { clock, machine, .. } = shared.site.clone();
        let options = Options {
            reactor: reactor.clone(),
            pool: core.pool().clone(),
            cache: stand.cache,
            members: stand.members,
            memory: params.memory(),
            block,
            owner,
            name: format!("{} of {machine}", shared.name),
            clock: Rc::new(clock),
            fastworm: params.fastworm,
            ahead: params.ahead(),
            commit_ns: COMMIT_NS,
        };
        let server = Server::with_name(&shared.name, reactor.clone(), core.pool().clone());
        server.login_ns.set(params.login_ns());
        Ok(Rc::new(Host {
            core: core.clone(),
            reactor,
            server,
            peers: Arc::default(),
            zone: clock::zone(),
            listening: RefCell::default(),
            accept_state: Rc::default(),
            everybody: Cell::default(),
            options,
            image,
            fs: RefCell::default(),
            awaited: RefCell::default(),
            dumps_on: Cell::new(true),
            rates: RefCell::default(),
            copies: RefCell::default(),
            generation: Cell::new(0),
            clock_changed: Notify::default(),
            is_editing: Cell::default(),
            edit_ended: Notify::default(),
            shared,
        }))
    }

    async fn run(self: Rc<Self>) {
        self.open(self.shared.params().create).await;
        loop {
            match self.shared.next_request().await {
                HostRequest::Stop => break,
                HostRequest::Ask(question) => {
                    self.reactor.spawn("fs-ask", question(self.clone()));
                }
                HostRequest::Verb(number, verb, params) => {
                    let host = self.clone();
                    self.reactor.spawn("fs-verb", async move {
                        let done = console::run(&host, number, &verb, &params).await;
                        host.shared.complete(number, done);
                    });
                }
                HostRequest::Edit(number, edit) => {
                    let host = self.clone();
                    self.reactor.spawn("fs-edit", async move {
                        let done = host.edit(number, *edit).await;
                        host.shared.complete(number, done.map(|()| serde_json::Value::Null));
                    });
                }
            }
        }
        self.shared.update_status(|s| s.phase = Phase::Halting);
        // Data that could not be made durable is in the journal, or was refused before.
        let _ = self.halt().await;
    }

    /// Its files; an error has the reason for none.
    pub(crate) fn files(&self) -> Result<Served, Error> {
        if let Some(fs) = &*self.fs.borrow() {
            return Ok(fs.clone());
        }
        Err(Error::new(
            Errno::NxIo,
            match self.shared.status().phase {
                Phase::Opening => "still opening: try again".to_owned(),
                Phase::Refused(why, next) => format!("not serving clients: {why}; {next}"),
                _ => format!("halted: `ashlar fs start {}`", self.shared.name),
            },
        ))
    }

    /// The devices and settings of its volume, as it was made.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The same, with the settings that an edit has changed.
    fn edited_options(&self) -> Options {
        let params = self.shared.params();
        let (fastworm, memory) = (params.fastworm, params.memory());
        Options { fastworm, memory, ahead: params.ahead(), ..self.options.clone() }
    }

    /// Opens it, or returns the reason.
    pub(crate) async fn open(self: &Rc<Self>, create: bool) {
        self.shared.update_status(|s| s.phase = Phase::Opening);
        if let Err((why, next)) = self.try_open(create).await {
            self.shared.update_status(|s| s.phase = Phase::Refused(why, next));
        }
    }

    async fn try_open(self: &Rc<Self>, create: bool) -> Result<(), (String, String)> {
        let name = &self.shared.name;
        let opened = match self.open_files().await {
            Err(Fault::Foreign(_)) if create && self.is_blank().await => {
                if let Some(volume) = self.shared.site.history.last_volume(name) {
                    return Err(missing_volume(name, volume));
                }
                match self.ream().await {
                    Ok(()) => self.open_files().await,
                    Err(fault) => Err(fault),
                }
            }
            opened => opened,
        };
        let fs = match opened {
            Ok(fs) => fs,
            Err(fault) => {
                let has_worm = !self.options.members.is_empty();
                let next = next_for(&fault, name, has_worm, self.is_formatted().await);
                return Err((fault.to_string(), next));
            }
        };
        self.server.export(name, fs.clone());
        *self.fs.borrow_mut() = Some(fs);
        // Before clients can attach.
        let params = self.shared.params();
        self.server.noattach.set(params.noattach);
        self.server.nonone.set(params.nonone);
        self.dumps_on.set(!params.nodump);
        *self.copies.borrow_mut() = Copies::new(self.options.cache.name());
        let ready = async {
            console::users::load_users(self).await?;
            self.add_disks().await;
            self.set_everybody(params.everybody.as_deref());
            self.listen(&params).await
        };
        if let Err(e) = ready.await {
            // No client was served: everything is as before.
            let _ = self.halt().await;
            return Err((e.message, format!("repair that, then `ashlar fs start {name}`")));
        }
        self.update_status();
        self.shared.update_status(|s| s.phase = Phase::Serving);
        let life = self.generation.get();
        let host = self.clone();
        self.reactor.spawn("fs-look", async move {
            while host.generation.get() == life {
                host.server.journal.reset_limit(host.reactor.now());
                host.look_at_disks().await;
                host.reopen_lost().await;
                host.update_status();
                host.update_rates();
                host.reactor.sleep(LOOK_NS).await;
            }
        });
        if !self.options.members.is_empty() {
            let host = self.clone();
            self.reactor.spawn("fs-clock", async move { host.keep_dumping(life).await });
        }
        Ok(())
    }

    async fn open_files(&self) -> Result<Served, Fault> {
        let options = self.edited_options();
        match self.image {
            Some(setup) => image::open(&options, setup).await.map(Served::from),
            None => {
                let volume = volume::open(&options).await?;
                FileSystem::mount(volume, ADM, ADM).await.map(Served::from)
            }
        }
    }

    /// Makes a new one on its devices.
    pub(crate) async fn ream(&self) -> Result<(), Fault> {
        match self.image {
            Some(setup) => image::ream(&self.options, setup).await,
            None => volume::ream(&self.options).await,
        }
    }

    /// There is one on its cache device.
    pub(crate) async fn is_formatted(&self) -> bool {
        match self.image {
            Some(_) => image::is_image(&self.options).await,
            None => volume::is_formatted(&self.options).await,
        }
    }

    /// Dumps that could be recovered; of an image that is the newest superblock alone, and nothing
    /// is listed.
    pub(crate) async fn recoverable(&self) -> Result<Vec<Dump>, Fault> {
        match self.image {
            Some(_) => Ok(Vec::new()),
            None => volume::dumps_on_worm(&self.options).await,
        }
    }

    /// Makes the cache device new from a dump of the WORM, the newest if none is named; returns
    /// which that is.
    pub(crate) async fn recover(&self, from: Option<&Dump>) -> Result<String, Fault> {
        if let Some(setup) = self.image {
            image::recover(&self.options, setup).await?;
            return Ok("the newest superblock of the WORM".to_owned());
        }
        let (year, day) = volume::recover(&self.options, from).await?.path();
        Ok(format!("/dump/{year}/{day}"))
    }

    /// None of its devices holds anything.
    pub(crate) async fn is_blank(&self) -> bool {
        let Options { cache, members: legs, .. } = &self.options;
        for medium in std::iter::once(cache).chain(legs) {
            if !matches!(self.options.is_blank(&**medium).await, Ok(true)) {
                return false;
            }
        }
        true
    }

    /// Lets tasks of clients run.
    pub(crate) async fn yield_now(&self) {
        self.reactor.yield_now().await;
    }

    /// Ends all service and makes everything durable.
    pub(crate) async fn halt(&self) -> Result<(), Error> {
        self.generation.set(self.generation.get() + 1);
        self.clock_changed.notify_all();
        drop(self.listening.take());
        let disks = self.shared.status().disks;
        disks.iter().for_each(|d| disks::close(d.key));
        self.shared.update_status(|s| {
            s.listens.clear();
            s.lost_listens.clear();
            s.disks.clear();
        });
        self.server.hang_up(None);
        self.server.clear_exports();
        let fs = self.fs.borrow_mut().take();
        match fs {
            Some(fs) => fs.close().await.map_err(|f| console::error(&f)),
            None => Ok(()),
        }
    }

    /// Counts of the activity.
    fn update_rates(&self) {
        let Some(fs) = &*self.fs.borrow() else { return };
        let (facts, who) = (fs.facts(), self.server.clients());
        let sum = |get: fn(&ClientInfo) -> u64| who.iter().map(get).sum();
        let counts = Counts {
            requests: sum(|p| p.requests),
            read: sum(|p| p.read),
            written: sum(|p| p.written),
            hits: facts.hits,
            misses: facts.misses,
            ahead: facts.ahead_loaded,
        };
        self.rates.borrow_mut().update(self.reactor.now(), &counts);
    }

    /// Updates the reported status.
    pub(crate) fn update_status(&self) {
        let Some(fs) = &*self.fs.borrow() else { return };
        let (facts, legs) = (fs.facts(), fs.members());
        let last = fs.dumps().last().map(|d| {
            let (year, day) = d.path();
            (d.time_ns, format!("{year}/{day}"))
        });
        let clients = self.server.clients().len();
        let turned_away = self.server.journal.take_last();
        let now = self.reactor.now();
        self.copies.borrow_mut().update(now, facts.block, fs.is_copying(), &legs);
        let copies = self.copies.borrow().clone();
        self.shared.update_status(|s| {
            (s.facts, s.members, s.last, s.clients) = (facts, legs, last, clients);
            s.copies = copies;
            if turned_away.is_some() {
                s.last_refused = turned_away;
            }
            s.noattach = self.server.noattach.get();
            s.allow = self.server.allow.get() || self.server.allow_one.get().is_some();
            s.nodump = !self.dumps_on.get();
            s.nocopy = !fs.is_copying();
            s.duallow = self.server.duallow.get().is_some();
            let ahead = fs.read_ahead();
            s.ahead = (ahead != self.shared.params().ahead()).then_some(ahead);
            s.traced = self.server.trace.filter() != TraceFilter::Off;
        });
    }

    /// The copy of dumps to a device of the WORM, if it runs or is paused.
    pub(crate) fn copy_progress(&self, device: &str) -> Option<geom::Progress> {
        let members = self.fs.borrow().as_ref()?.members();
        let all = self.copies.borrow().measures(&members);
        all.iter().filter_map(Measure::progress).find(|copy| copy.part == device).cloned()
    }

    /// Takes a dump of today.
    pub(crate) async fn dump(&self) -> Result<Dump, Error> {
        let fs = self.files()?;
        let dump = self.server.dump(&fs, clock::day(self.wall(), &self.zone)).await;
        let dump = dump.map_err(|fault| console::error(&fault))?;
        self.update_status();
        Ok(dump)
    }

    /// A dump a day, at the time of the section.
    async fn keep_dumping(&self, life: u64) {
        let mut current: Option<(TimeOfDay, Daily)> = None;
        while self.generation.get() == life {
            let seen = self.clock_changed.count();
            let Ok(Some(at)) = self.shared.params().dump_at() else {
                current = None;
                self.shared.update_status(|s| s.next = None);
                self.clock_changed.after(seen).await;
                continue;
            };
            let daily = match current.take() {
                Some((of, daily)) if of == at => daily,
                _ => Daily::new(at, self.wall(), &self.zone),
            };
            let (_, daily) = current.insert((at, daily));
            let last = self.shared.status().last.map_or(0, |(ns, _)| ns);
            let turn = daily.next_action(self.wall(), last, &self.zone);
            let next = daily.due();
            self.shared.update_status(|s| s.next = Some(next));
            match turn {
                DumpAction::Sleep(ns) => {
                    self.clock_changed.after_or(&self.reactor, seen, Some(ns)).await;
                }
                DumpAction::Dump if self.dumps_on.get() => {
                    let fault = self.dump().await.err().map(|e| e.message);
                    self.shared.update_status(|s| s.dump_fault = fault);
                }
                DumpAction::Dump | DumpAction::Skip => {}
            }
        }
    }

    /// Reports the progress of the verb of that number.
    pub(crate) fn report_progress(&self, number: u64, what: String, done: u64, total: u64) {
        self.shared.set_progress(number, Progress { activity: what, done, total });
    }

    /// The result of `f`, if it ends in so many ns.
    pub(crate) async fn within<T>(&self, ns: u64, f: impl Future<Output = T>) -> Option<T> {
        deadline(&self.core, ns, f).await
    }

    /// A buffer with these bytes, at most [`bio::Pool::largest`]; waits while there is none.
    pub(crate) async fn buffer(&self, bytes: &[u8]) -> Seg {
        loop {
            if let Some(seg) =
                self.options.pool.get(bytes.len()).and_then(|b| b.seg(0, bytes.len()))
            {
                seg.copy_from(0, bytes);
                return seg;
            }
            self.reactor.sleep(1_000_000).await;
        }
    }

    /// Wall clock, ns since 1970.
    fn wall(&self) -> u64 {
        (self.shared.site.clock)()
    }

    pub(crate) fn set_users(&self, users: Users) {
        self.server.set_users(users);
    }
}
