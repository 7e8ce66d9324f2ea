//! Listening: one task an address, a task a client.

use std::fmt;
use std::rc::Rc;

use bio::Errno;
use geom::{Error, Local};
use reactor::{Address, Link, Reactor, Stream};
use transport::{AcceptState, Listener, counted_as};

use super::cec::{self, Cec};
use super::host::Host;
use crate::console;
use crate::ninep::{Flavour, ListenerOptions};

/// How often an address that is in use is tried again: the kernel closes the sockets of a process
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

/// The protocol of an address.
#[derive(Clone)]
pub enum ListenProtocol {
    NineP(ListenerOptions),
    /// The same, by TLS.
    Secure(ListenerOptions),
    Console,
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
    /// The key of the connection limit: an address without its port, or a user.
    counts_as: String,
}

impl Accepted {
    fn new(stream: Stream, peer: &Address, at: &Address) -> Accepted {
        let counts_as = counted_as(peer, at);
        let peer = peer.inet().map_or_else(|| at.to_string(), |peer| peer.to_string());
        Accepted { stream, peer, counts_as }
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
    /// The addresses of its parameters, and their protocols.
    fn listeners(&self) -> Result<Vec<(String, ListenProtocol)>, Error> {
        let params = &self.shared.params;
        let users = self.server.users();
        let everybody = match &params.everybody {
            None => None,
            Some(name) => Some(users.id(name).ok_or_else(|| {
                Error::new(Errno::NoEnt, format!("`everybody`: there is no user `{name}`"))
            })?),
        };
        let linux = ListenerOptions {
            flavour: Flavour::Linux,
            fixed_user: everybody,
            ..ListenerOptions::default()
        };
        let plan9 = ListenerOptions::default();
        self.shared.read_keys()?;
        let with = |all: &[String], speaks: &ListenProtocol| {
            all.iter().map(|at| (at.clone(), speaks.clone())).collect::<Vec<_>>()
        };
        let mut out = with(&params.linux, &ListenProtocol::NineP(linux));
        out.extend(with(&params.plan9, &ListenProtocol::NineP(plan9)));
        let linux = ListenerOptions { flavour: Flavour::Linux, ..ListenerOptions::default() };
        out.extend(with(&params.linux_tls, &ListenProtocol::Secure(linux)));
        out.extend(with(&params.plan9_tls, &ListenProtocol::Secure(ListenerOptions::default())));
        out.extend(with(&params.console, &ListenProtocol::Console));
        Ok(out)
    }

    /// Listens at all of them, or at none.
    pub(super) async fn listen(self: &Rc<Self>) -> Result<(), Error> {
        let mut bound = Vec::new();
        for (text, speaks) in self.listeners()? {
            let at = match speaks {
                ListenProtocol::Console => parse_console(&text)?,
                _ => parse(&text)?,
            };
            let listener = bind(&self.reactor, &at).await.map_err(|e| {
                let look = match (at.inet(), at.ether()) {
                    (Some(at), _) => {
                        format!("`ss -ltnp 'sport = :{}'` names who has it", at.port())
                    }
                    (_, Some(_)) => "`ip link` shows interfaces; it takes CAP_NET_RAW".to_owned(),
                    _ => "its folder must be there and writable".to_owned(),
                };
                Error::new(Errno::Busy, format!("cannot listen at {text}: {e}; {look}"))
            })?;
            bound.push((listener, at, speaks));
        }
        let names = bound.iter().map(|(b, at, _)| b.name(at)).collect();
        self.shared.update_status(|s| s.listens = names);
        let state = Rc::new(AcceptState::default());
        for (listener, at, speaks) in bound {
            let task = match listener {
                Bound::Ether(link) => self.reactor.spawn("fs-cec", self.cec().serve(link)),
                Bound::Socket(listener) => {
                    let accepting = self.clone().accept(listener, at, speaks, state.clone());
                    self.reactor.spawn("fs-listen", accepting)
                }
            };
            self.listening.borrow_mut().push(task);
        }
        Ok(())
    }

    /// Accepts until the task is aborted.
    async fn accept(
        self: Rc<Self>,
        listener: Listener,
        at: Address,
        speaks: ListenProtocol,
        state: Rc<AcceptState>,
    ) {
        let name = &self.shared.name;
        let log = |what: fmt::Arguments<'_>| tracing::warn!(target: "fs", "{name}: {what}");
        let admit = async |stream, peer| {
            self.serve_client(Accepted::new(stream, &peer, &at), &speaks);
        };
        listener.accept_all(&self.reactor, &at, &state, log, admit).await;
    }

    /// The console of a wire. Its lines keep nothing of a server that has gone.
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

    fn serve_client(self: &Rc<Self>, accepted: Accepted, speaks: &ListenProtocol) {
        let Accepted { stream, peer, counts_as } = accepted;
        let most = self.shared.params.connections_per_peer();
        let Some(counted) = self.peers.enter(&counts_as, most) else {
            let why = format_args!(
                "refused, {counts_as} has {most} connections already; next: if they are wanted, \
                 raise connections_per_peer"
            );
            self.server.journal.log_refused(&peer, why);
            return stream.reset();
        };
        match speaks {
            ListenProtocol::NineP(options) => {
                let served = self.server.clone().serve(stream, peer, options.clone());
                self.reactor.spawn("fs-client", async move {
                    served.await;
                    drop(counted);
                });
            }
            ListenProtocol::Secure(options) => {
                let Some(keys) = self.shared.keys() else { return stream.reset() };
                let met = self.clone().serve_tls(stream, peer, keys, options.clone());
                self.reactor.spawn("fs-tls", async move {
                    met.await;
                    drop(counted);
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
