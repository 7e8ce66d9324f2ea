//! Listening: one task an address, a task a client.

use std::rc::Rc;

use bio::Errno;
use geom::Error;
use keys::Keys;
use reactor::{Address, Reactor, Stream};

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
            Err(Error::new(Errno::Inval, what))
        }
        Ok(address) => Ok(address),
    }
}

/// What is spoken there.
#[derive(Clone)]
pub enum Speaks {
    NineP(Door),
    /// The same, by TLS.
    Secure(Door, Keys),
    Console,
}

enum Bound {
    Inet(reactor::Listener),
    Unix(reactor::UnixListener, String),
}

impl Bound {
    async fn accept(&self) -> std::io::Result<(Stream, String)> {
        match self {
            Bound::Inet(l) => l.accept().await.map(|(stream, peer)| (stream, peer.to_string())),
            Bound::Unix(l, path) => l.accept().await.map(|stream| (stream, path.clone())),
        }
    }

    fn name(&self) -> String {
        match self {
            Bound::Inet(l) => l.local_addr().to_string(),
            Bound::Unix(_, path) => path.clone(),
        }
    }
}

async fn bind(reactor: &Reactor, at: &Address) -> std::io::Result<Bound> {
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
        let keys = params.keys()?;
        let with = |all: &[String], speaks: &Speaks| {
            all.iter().map(|at| (at.clone(), speaks.clone())).collect::<Vec<_>>()
        };
        let mut out = with(&params.linux, &Speaks::NineP(linux));
        out.extend(with(&params.plan9, &Speaks::NineP(plan9)));
        if let Some(keys) = keys {
            let linux = Door { flavour: Flavour::Linux, ..Door::default() };
            out.extend(with(&params.linux_tls, &Speaks::Secure(linux, keys.clone())));
            out.extend(with(&params.plan9_tls, &Speaks::Secure(Door::default(), keys)));
        }
        out.extend(with(&params.console, &Speaks::Console));
        Ok(out)
    }

    /// Listens at all of them, or at none.
    pub(super) async fn listen(self: &Rc<Self>) -> Result<(), Error> {
        let mut bound = Vec::new();
        for (text, speaks) in self.doors()? {
            let at = parse(&text)?;
            let listener = bind(&self.reactor, &at).await.map_err(|e| {
                let look = match at.inet() {
                    Some(at) => format!("`ss -ltnp 'sport = :{}'` names who has it", at.port()),
                    None => "its folder must be there and writable".to_owned(),
                };
                Error::new(Errno::Busy, format!("cannot listen at {text}: {e}; {look}"))
            })?;
            bound.push((listener, speaks));
        }
        let names = bound.iter().map(|(b, _)| b.name()).collect();
        self.shared.report(|s| s.listens = names);
        for (listener, speaks) in bound {
            let host = self.clone();
            let task = self.reactor.spawn("fs-listen", async move {
                loop {
                    match listener.accept().await {
                        Ok((stream, peer)) => host.meet(stream, peer, &speaks),
                        Err(_) => host.reactor.sleep(PAUSE_NS).await,
                    }
                }
            });
            self.listening.borrow_mut().push(task);
        }
        Ok(())
    }

    fn meet(self: &Rc<Self>, stream: Stream, peer: String, speaks: &Speaks) {
        match speaks {
            Speaks::NineP(door) => {
                let served = self.server.clone().serve(stream, peer, door.clone());
                self.reactor.spawn("fs-client", served);
            }
            Speaks::Secure(door, keys) => {
                let met = self.clone().meet_secure(stream, peer, keys.clone(), door.clone());
                self.reactor.spawn("fs-tls", met);
            }
            Speaks::Console => {
                let host = self.clone();
                self.reactor.spawn("fs-console", async move {
                    // Whoever typed has left.
                    let _ = console::serve(&host, stream).await;
                });
            }
        }
    }
}
