//! Listeners of a file server: one task an address, a task a client.
//!
//! Invariants
//!  L1  A change of the listeners ends no session, and a listener that stays is not closed for a
//!      moment. If a new address cannot be listened at, the former ones are.
//!  L2  A former address that another process took during such a change is reported, and tried
//!      again until it is free.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use bio::Errno;
use geom::{Error, Local, ServedClient, Trouble};
use reactor::{Address, Link, Reactor, Stream, TaskHandle};
use transport::{Listener, counted_as};
use wire::portal::listeners_overlap;

use super::cec::{self, Cec};
use super::host::Host;
use super::params::FsParams;
use super::shared::{HostShared, Status};
use crate::console;
use crate::ninep::{Flavour, ListenerOptions};

/// How often an address that is in use is tried again. The kernel closes the sockets of a process
/// that was killed a moment after its end.
const TRIES_MAX: u32 = 50;
/// Time between two tries, ns.
const PAUSE_NS: u64 = 20_000_000;

/// An address that can be listened at.
pub fn parse(text: &str) -> Result<Address, Error> {
    match text.parse() {
        Ok(Address::Ether(_)) | Err(_) => {
            let what = format!("`{text}` is not an address to listen at (0.0.0.0:564, unix:/PATH)");
            Err(Error::inval(what))
        }
        Ok(address) => Ok(address),
    }
}

/// An address for the console: a socket, or an interface whose wire may type.
pub fn parse_console(text: &str) -> Result<Address, Error> {
    Address::parse_ether(text).map_or_else(|| parse(text), Ok)
}

/// The protocol of a listener, by the key that lists its address. In the order of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenProtocol {
    Linux,
    Plan9,
    LinuxTls,
    Plan9Tls,
    Console,
}

impl ListenProtocol {
    /// The key of the section.
    fn key(self) -> &'static str {
        match self {
            ListenProtocol::Linux => "linux",
            ListenProtocol::Plan9 => "plan9",
            ListenProtocol::LinuxTls => "linux_tls",
            ListenProtocol::Plan9Tls => "plan9_tls",
            ListenProtocol::Console => "console",
        }
    }

    /// The rules of its 9P clients.
    fn flavour(self) -> Flavour {
        match self {
            ListenProtocol::Linux | ListenProtocol::LinuxTls => Flavour::Linux,
            _ => Flavour::Plan9,
        }
    }
}

/// An address of the section, and its protocol.
#[derive(Clone, PartialEq, Eq)]
struct ListenAddress {
    speaks: ListenProtocol,
    text: String,
    at: Address,
}

impl ListenAddress {
    /// Those of a section.
    fn all(params: &FsParams) -> Result<Vec<ListenAddress>, Error> {
        let lists = [
            (ListenProtocol::Linux, &params.linux),
            (ListenProtocol::Plan9, &params.plan9),
            (ListenProtocol::LinuxTls, &params.linux_tls),
            (ListenProtocol::Plan9Tls, &params.plan9_tls),
            (ListenProtocol::Console, &params.console),
        ];
        let texts = lists.into_iter();
        let texts = texts.flat_map(|(speaks, list)| list.iter().map(move |text| (speaks, text)));
        let address = |(speaks, text): (ListenProtocol, &String)| -> Result<ListenAddress, Error> {
            let at = match speaks {
                ListenProtocol::Console => parse_console(text)?,
                _ => parse(text)?,
            };
            Ok(ListenAddress { speaks, text: text.clone(), at })
        };
        texts.map(address).collect()
    }

    /// Whether only one of two addresses can be listened at.
    fn overlaps(&self, other: &ListenAddress) -> bool {
        match (self.at.inet(), other.at.inet()) {
            (Some(a), Some(b)) => listeners_overlap(a, b),
            (None, None) => self.at == other.at,
            _ => false,
        }
    }
}

/// A listener, which closes when it is dropped.
pub(super) struct OpenListener {
    address: ListenAddress,
    /// The address with the port that was free.
    name: String,
    task: TaskHandle,
}

impl Drop for OpenListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The report of addresses that a change has lost (L2).
pub(super) fn trouble(status: &Status) -> Option<Trouble> {
    let lost = status.lost_listens.join(", ");
    let why = format!("no listener at {lost}: another process took that during an edit");
    let action = "the address is tried again automatically; `ss -ltnp` names the process";
    (!lost.is_empty()).then(|| Trouble::degraded(why, action))
}

enum Bound {
    Socket(Listener),
    Ether(Link),
}

/// A connection that has just been accepted.
struct Accepted {
    stream: Stream,
    /// The client's name in reports.
    peer: String,
    /// Our address of the connection.
    portal: String,
    /// The key of the connection limit: an address without its port, or a user.
    counts_as: String,
}

impl Accepted {
    fn new(stream: Stream, peer: &Address, at: &Address) -> Accepted {
        let counts_as = counted_as(peer, at);
        let peer = peer.inet().map_or_else(|| at.to_string(), |peer| peer.to_string());
        let local = at.inet().and_then(|_| stream.local_addr().ok());
        let portal = local.map_or_else(|| at.to_string(), |local| local.to_string());
        Accepted { stream, peer, portal, counts_as }
    }
}

/// A 9P connection that is counted in the status until it is dropped.
struct Connected {
    shared: Arc<HostShared>,
    client: ServedClient,
}

impl Connected {
    fn new(shared: &Arc<HostShared>, client: ServedClient) -> Connected {
        shared.update_status(|s| *s.connected.entry(client.clone()).or_default() += 1);
        Connected { shared: shared.clone(), client }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.shared.update_status(|s| {
            let Some(count) = s.connected.get_mut(&self.client) else { return };
            *count -= 1;
            if *count == 0 {
                s.connected.remove(&self.client);
            }
        });
    }
}

impl Bound {
    fn name(&self, at: &Address) -> String {
        match self {
            Bound::Socket(Listener::Tcp(listener)) => listener.local_addr().to_string(),
            _ => at.to_string(),
        }
    }
}

async fn bind(reactor: &Reactor, at: &Address) -> std::io::Result<Bound> {
    if let Some(interface) = at.ether() {
        return cec::link(reactor, interface).map(Bound::Ether);
    }
    let mut tries = 0;
    loop {
        match Listener::bind(reactor, at).map(Bound::Socket) {
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && tries < TRIES_MAX => {
                tries += 1;
                reactor.sleep(PAUSE_NS).await;
            }
            other => return other,
        }
    }
}

impl Host {
    /// Sets the user of all clients of `linux`; its name is that of a user.
    pub(super) fn set_everybody(&self, name: Option<&str>) {
        let users = self.server.users();
        self.everybody.set(name.and_then(|name| users.id(name)));
    }

    /// Listens at the addresses of a section and at no others (L1).
    pub(super) async fn listen(self: &Rc<Self>, params: &FsParams) -> Result<(), Error> {
        let life = self.generation.get();
        let mut new = ListenAddress::all(params)?;
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for listener in self.listening.take() {
            match new.iter().position(|address| *address == listener.address) {
                Some(i) => {
                    new.remove(i);
                    kept.push(listener);
                }
                None => gone.push(listener),
            }
        }
        self.listening.replace(kept);
        // An address that a former one overlaps is free when that is closed.
        let is_in_the_way =
            |former: &OpenListener| new.iter().any(|address| address.overlaps(&former.address));
        let (closed, open): (Vec<_>, Vec<_>) = gone.into_iter().partition(is_in_the_way);
        let closed: Vec<ListenAddress> = closed.into_iter().map(|l| l.address.clone()).collect();
        let (more, result) = match self.open_all(new).await {
            Ok(more) => (more, Ok(())),
            Err(e) => {
                let back = self.open_each(closed).await;
                (open.into_iter().chain(back).collect(), Err(e))
            }
        };
        self.check_life(life)?;
        self.add_listeners(more);
        let lost = if result.is_ok() { Vec::new() } else { self.lost_addresses() };
        let lost = lost.into_iter().map(|address| address.text).collect();
        self.shared.update_status(|s| s.lost_listens = lost);
        result
    }

    /// Refuses to continue after a halt, also if the file server was opened again.
    pub(super) fn check_life(&self, life: u64) -> Result<(), Error> {
        if self.generation.get() == life {
            return Ok(());
        }
        let name = &self.shared.name;
        let what = format!("{name} was halted meanwhile; `ashlar fs start {name}` opens it");
        Err(Error::new(Errno::NxIo, what))
    }

    fn add_listeners(&self, more: Vec<OpenListener>) {
        let mut all = self.listening.take();
        all.extend(more);
        all.sort_by_key(|listener| listener.address.speaks);
        let names = all.iter().map(|listener| listener.name.clone()).collect();
        self.listening.replace(all);
        self.shared.update_status(|s| s.listens = names);
    }

    /// Addresses of the section that is in force without a listener.
    fn lost_addresses(&self) -> Vec<ListenAddress> {
        let mut all = ListenAddress::all(&self.shared.params()).unwrap_or_default();
        let open = self.listening.borrow();
        all.retain(|address| open.iter().all(|listener| listener.address != *address));
        all
    }

    /// Listens again at the addresses that a change has lost, if they are free now (L2).
    pub(super) async fn reopen_lost(self: &Rc<Self>) {
        if self.shared.status().lost_listens.is_empty() || self.is_editing.replace(true) {
            return;
        }
        let life = self.generation.get();
        let more = self.open_each(self.lost_addresses()).await;
        if self.generation.get() == life {
            self.add_listeners(more);
            let lost = self.lost_addresses().into_iter().map(|address| address.text).collect();
            self.shared.update_status(|s| s.lost_listens = lost);
        }
        self.end_edit();
    }

    /// Listens at those of these that are free.
    async fn open_each(self: &Rc<Self>, addresses: Vec<ListenAddress>) -> Vec<OpenListener> {
        let mut all = Vec::new();
        for address in addresses {
            all.extend(self.open_all(vec![address]).await.unwrap_or_default());
        }
        all
    }

    /// Listens at all of these, or at none.
    async fn open_all(
        self: &Rc<Self>,
        addresses: Vec<ListenAddress>,
    ) -> Result<Vec<OpenListener>, Error> {
        let mut bound = Vec::new();
        for address in addresses {
            let listener = bind(&self.reactor, &address.at).await.map_err(|e| {
                let look = match (address.at.inet(), address.at.ether()) {
                    (Some(at), _) => {
                        format!("`ss -ltnp 'sport = :{}'` names who has it", at.port())
                    }
                    (_, Some(_)) => "`ip link` shows interfaces; it takes CAP_NET_RAW".to_owned(),
                    _ => "its folder must be there and writable".to_owned(),
                };
                let text = &address.text;
                Error::new(Errno::Busy, format!("cannot listen at {text}: {e}; {look}"))
            })?;
            bound.push((listener, address));
        }
        let accepting = |(listener, address): (Bound, ListenAddress)| {
            let (name, at) = (listener.name(&address.at), address.at.clone());
            let task = match listener {
                Bound::Ether(link) => self.reactor.spawn("fs-cec", self.cec().serve(link)),
                Bound::Socket(listener) => {
                    let accepting = self.clone().accept(listener, at, address.speaks);
                    self.reactor.spawn("fs-listen", accepting)
                }
            };
            OpenListener { address, name, task }
        };
        Ok(bound.into_iter().map(accepting).collect())
    }

    /// Accepts until the task is aborted.
    async fn accept(self: Rc<Self>, listener: Listener, at: Address, speaks: ListenProtocol) {
        let name = &self.shared.name;
        let log = |what: fmt::Arguments<'_>| tracing::warn!(target: "fs", "{name}: {what}");
        let admit = async |stream, peer| {
            self.serve_client(Accepted::new(stream, &peer, &at), speaks);
        };
        listener.accept_all(&self.reactor, &at, &self.accept_state, log, admit).await;
    }

    /// The console of a wire. Its lines keep nothing of a removed server.
    fn cec(self: &Rc<Self>) -> Rc<Cec> {
        let host = Rc::downgrade(self);
        let run = move |line: String| -> Local<'static, String> {
            let host = host.upgrade();
            Box::pin(async move {
                match host {
                    Some(host) => console::run_line_or_error(&host, &line).await,
                    None => String::new(),
                }
            })
        };
        Cec::new(&self.reactor, &self.shared.name, Box::new(run))
    }

    fn serve_client(self: &Rc<Self>, accepted: Accepted, speaks: ListenProtocol) {
        let Accepted { stream, peer, portal, counts_as } = accepted;
        let most = self.shared.params().connections_per_peer();
        let Some(counted) = self.peers.enter(&counts_as, most) else {
            let why = format_args!(
                "refused, {counts_as} has {most} connections already; next: if they are wanted, \
                 raise connections_per_peer"
            );
            self.server.journal.log_refused(&peer, why);
            return stream.reset();
        };
        let client = ServedClient { name: counts_as, key: speaks.key(), portal };
        let options = ListenerOptions { flavour: speaks.flavour(), ..ListenerOptions::default() };
        match speaks {
            ListenProtocol::Linux | ListenProtocol::Plan9 => {
                let fixed_user = self.everybody.get().filter(|_| speaks == ListenProtocol::Linux);
                let options = ListenerOptions { fixed_user, ..options };
                let connected = Connected::new(&self.shared, client);
                let served = self.server.clone().serve(stream, peer, options);
                self.reactor.spawn("fs-client", async move {
                    served.await;
                    drop((counted, connected));
                });
            }
            ListenProtocol::LinuxTls | ListenProtocol::Plan9Tls => {
                let Some(keys) = self.shared.keys() else { return stream.reset() };
                let connected = Connected::new(&self.shared, client);
                let met = self.clone().serve_tls(stream, peer, keys, options);
                self.reactor.spawn("fs-tls", async move {
                    met.await;
                    drop((counted, connected));
                });
            }
            ListenProtocol::Console => {
                let host = self.clone();
                self.reactor.spawn("fs-console", async move {
                    // The operator has left.
                    let _ = console::serve(&host, stream).await;
                    drop(counted);
                });
            }
        }
    }
}
