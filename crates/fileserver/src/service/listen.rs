//! Listening: one task an address, a task a client.

use std::rc::Rc;

use bio::Errno;
use geom::{Error, Local};
use reactor::{Address, Link, Reactor, Stream};

use super::cec::{self, Cec};
use super::host::Host;
use crate::console;
use crate::ninep::{Door, Flavour};

/// How often an address that is in use is tried again: the kernel closes the sockets of a process
/// that was killed a moment after its end.
const TRIES_MAX: u32 = 50;
/// Time between two tries, and after a connection that could not be taken, ns.
const PAUSE_NS: u64 = 20_000_000;

/// An address that can be listened at.
pub fn parse(text: &str) -> Result<Address, Error> {
    match text.parse() {
        Ok(Address::Ether(_)) | Err(_) => {
            let what = format!("`{text}` is no address to listen at (0.0.0.0:564, unix:/PATH)");
            Err(Error::inval(what))
        }
        Ok(address) => Ok(address),
    }
}

/// An address for the console: a socket, or an interface whose wire may type.
pub fn parse_console(text: &str) -> Result<Address, Error> {
    Address::parse_ether(text).map_or_else(|| parse(text), Ok)
}

/// What is spoken there.
#[derive(Clone)]
pub enum Speaks {
    NineP(Door),
    /// The same, by TLS.
    Secure(Door),
    Console,
}

enum Bound {
    Inet(reactor::Listener),
    Unix(reactor::UnixListener, String),
    Ether(Link, String),
}

/// A connection that has just been accepted.
struct Accepted {
    stream: Stream,
    /// Who it is, for people.
    peer: String,
    /// Whose connections count together: an address without its port, or a user.
    counts_as: String,
}

impl Bound {
    async fn accept(&self) -> std::io::Result<Accepted> {
        match self {
            Bound::Inet(l) => l.accept().await.map(|(stream, peer)| Accepted {
                stream,
                peer: peer.to_string(),
                counts_as: peer.ip().to_canonical().to_string(),
            }),
            Bound::Unix(l, path) => {
                let stream = l.accept().await?;
                let counts_as = format!("{path} uid={}", stream.peer_uid()?);
                Ok(Accepted { stream, peer: path.clone(), counts_as })
            }
            Bound::Ether(..) => std::future::pending().await,
        }
    }

    fn name(&self) -> String {
        match self {
            Bound::Inet(l) => l.local_addr().to_string(),
            Bound::Unix(_, name) | Bound::Ether(_, name) => name.clone(),
        }
    }
}

async fn bind(reactor: &Reactor, at: &Address) -> std::io::Result<Bound> {
    if let Some(interface) = at.ether() {
        return cec::link(reactor, interface).map(|link| Bound::Ether(link, at.to_string()));
    }
    let mut tries = 0;
    loop {
        let bound = match (at.inet(), at.unix()) {
            (Some(inet), _) => reactor.listen(inet).map(Bound::Inet),
            (_, Some(path)) => reactor.listen_unix(path).map(|l| Bound::Unix(l, at.to_string())),
            _ => Err(std::io::ErrorKind::Unsupported.into()),
        };
        match bound {
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse && tries < TRIES_MAX => {
                tries += 1;
                reactor.sleep(PAUSE_NS).await;
            }
            other => return other,
        }
    }
}

impl Host {
    /// The addresses of its parameters, and what is spoken there.
    fn doors(&self) -> Result<Vec<(String, Speaks)>, Error> {
        let params = &self.shared.params;
        let users = self.server.users();
        let everybody = match &params.everybody {
            None => None,
            Some(name) => Some(users.id(name).ok_or_else(|| {
                Error::new(Errno::NoEnt, format!("everybody: there is no user `{name}`"))
            })?),
        };
        let linux = Door { flavour: Flavour::Linux, everybody, ..Door::default() };
        let plan9 = Door::default();
        self.shared.read_keys()?;
        let with = |all: &[String], speaks: &Speaks| {
            all.iter().map(|at| (at.clone(), speaks.clone())).collect::<Vec<_>>()
        };
        let mut out = with(&params.linux, &Speaks::NineP(linux));
        out.extend(with(&params.plan9, &Speaks::NineP(plan9)));
        let linux = Door { flavour: Flavour::Linux, ..Door::default() };
        out.extend(with(&params.linux_tls, &Speaks::Secure(linux)));
        out.extend(with(&params.plan9_tls, &Speaks::Secure(Door::default())));
        out.extend(with(&params.console, &Speaks::Console));
        Ok(out)
    }

    /// Listens at all of them, or at none.
    pub(super) async fn listen(self: &Rc<Self>) -> Result<(), Error> {
        let mut bound = Vec::new();
        for (text, speaks) in self.doors()? {
            let at = match speaks {
                Speaks::Console => parse_console(&text)?,
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
            bound.push((listener, speaks));
        }
        let names = bound.iter().map(|(b, _)| b.name()).collect();
        self.shared.report(|s| s.listens = names);
        for (listener, speaks) in bound {
            let host = self.clone();
            if let Bound::Ether(link, _) = listener {
                let task = self.reactor.spawn("fs-cec", self.cec().serve(link));
                self.listening.borrow_mut().push(task);
                continue;
            }
            let task = self.reactor.spawn("fs-listen", async move {
                loop {
                    match listener.accept().await {
                        Ok(accepted) => host.meet(accepted, &speaks),
                        Err(_) => host.reactor.sleep(PAUSE_NS).await,
                    }
                }
            });
            self.listening.borrow_mut().push(task);
        }
        Ok(())
    }

    /// The console of a wire. Its lines keep nothing of a server that has gone.
    fn cec(self: &Rc<Self>) -> Rc<Cec> {
        let host = Rc::downgrade(self);
        let run = move |line: String| -> Local<'static, String> {
            let host = host.upgrade();
            Box::pin(async move {
                match host {
                    Some(host) => console::typed(&host, &line).await,
                    None => String::new(),
                }
            })
        };
        Cec::new(&self.reactor, &self.shared.name, Box::new(run))
    }

    fn meet(self: &Rc<Self>, accepted: Accepted, speaks: &Speaks) {
        let Accepted { stream, peer, counts_as } = accepted;
        let Some(counted) = self.peers.enter(&counts_as) else {
            let most = self.peers.most();
            let why = format_args!(
                "refused, {counts_as} has {most} connections already; next: if they are wanted, \
                 raise connections_per_peer"
            );
            self.server.journal.turned_away(&peer, why);
            return stream.reset();
        };
        match speaks {
            Speaks::NineP(door) => {
                let served = self.server.clone().serve(stream, peer, door.clone());
                self.reactor.spawn("fs-client", async move {
                    served.await;
                    drop(counted);
                });
            }
            Speaks::Secure(door) => {
                let Some(keys) = self.shared.keys() else { return stream.reset() };
                let met = self.clone().meet_secure(stream, peer, keys, door.clone());
                self.reactor.spawn("fs-tls", async move {
                    met.await;
                    drop(counted);
                });
            }
            Speaks::Console => {
                let host = self.clone();
                self.reactor.spawn("fs-console", async move {
                    // Whoever typed has left.
                    let _ = console::serve(&host, stream).await;
                    drop(counted);
                });
            }
        }
    }
}
