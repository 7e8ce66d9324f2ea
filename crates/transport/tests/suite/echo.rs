//! `echo`: a whole transport over the framework. A client greets with four bytes and its letter;
//! every byte that follows is returned. It runs over the simulated network, TCP and Unix sockets.

use std::fmt;
use std::rc::Rc;

use bio::{Pool, PoolConfig};
use reactor::sim::{Actor, Ended, Limits, NetShape, World};
use reactor::{Address, Config, Reactor};
use testkit::Seeds;
use transport::{CommonReason, LogFn, Protocol, Reason, ReceiveBuffer, TaskNames, Terms};

use crate::client::{self, Client};

pub const GREETING: &[u8] = b"ECHO";

/// Connections of one peer.
pub const PER_PEER: u32 = 12;

pub struct Echo;

#[derive(Clone)]
pub enum Closed {
    Common(CommonReason),
    NoGreeting,
}

const TERMS: Terms =
    Terms { peer: "client", request: "byte", handshake: "greeting", timeout: "no greeting" };

impl From<CommonReason> for Closed {
    fn from(reason: CommonReason) -> Closed {
        Closed::Common(reason)
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::Common(reason) => reason.describe(&TERMS, f),
            Closed::NoGreeting => f.write_str("the greeting is not ECHO"),
        }
    }
}

impl Reason for Closed {
    fn common(&self) -> Option<&CommonReason> {
        let Closed::Common(reason) = self else { return None };
        Some(reason)
    }

    fn flushes(&self) -> bool {
        matches!(self, Closed::Common(CommonReason::PeerClosed))
    }
}

pub type Connection = transport::Connection<Echo>;
pub type PerCore = transport::PerCore<Echo>;

impl Echo {
    async fn run(conn: &Connection, mut rx: ReceiveBuffer) -> Result<(), Closed> {
        rx.fill(GREETING.len() + 1).await?;
        if !rx.peek(GREETING.len(), |b| b == GREETING) {
            return Err(Closed::NoGreeting);
        }
        rx.consume(GREETING.len());
        let letter = rx.peek(1, |b| char::from(b[0]));
        rx.consume(1);
        conn.enter(&Rc::new(letter));
        loop {
            conn.io.wait_for_space().await;
            rx.fill(1).await?;
            let len = rx.arrived();
            rx.peek(len, |b| conn.io.tx.borrow_mut().put(b));
            rx.consume(len);
        }
    }
}

impl Protocol for Echo {
    const TASKS: TaskNames =
        TaskNames { portal: "listen", connection: "echo", watch: "watch", messages: None };
    const WARN: LogFn = |_, what| eprintln!("warn: {what}");
    const INFO: LogFn = |_, what| eprintln!("info: {what}");
    const LISTENS_AT: &'static str = "echo listens at ADDRESS:PORT or unix:/PATH";
    const UNIX: bool = true;
    const HANDSHAKE_S: u32 = 5;
    type Global = ();
    type PerCore = ();
    type ConnState = ();
    type PeerSession = char;
    type Reason = Closed;
    type CoreMessage = ();

    async fn serve(conn: &Rc<Connection>, rx: ReceiveBuffer) -> Closed {
        Echo::run(conn, rx).await.err().unwrap_or(Closed::NoGreeting)
    }

    fn label(session: &char) -> String {
        session.to_string()
    }

    async fn finish(_: &Connection, _: Rc<char>) {}

    fn connections_per_peer(_: &transport::GlobalState<Echo>, _: &Address) -> u32 {
        PER_PEER
    }
}

/// Installs `echo` on a core for `most` connections.
pub fn install(reactor: &Reactor, most: usize) -> Rc<PerCore> {
    let shared = transport::GlobalState::new((), most);
    PerCore::install(&shared, (0, reactor, &Pool::new(PoolConfig::default())), ())
}

/// K2 of io_loop.rs.
#[test]
fn bytes_are_returned_over_the_simulated_network() {
    Seeds::of(1000).each(|seed| {
        let world = World::new(seed);
        let segment_max = 1 + (seed as usize * 37) % 1500;
        world.set_net(NetShape { segment_max, ..NetShape::default() });
        let (server, outside) = (Reactor::simulated(&world, "s"), Reactor::simulated(&world, "c"));
        let core = install(&server, 10);
        let at = core.open_portal("127.0.0.1:7".parse().unwrap()).unwrap();
        let own = outside.clone();
        let played = client::spawn(&outside, async move {
            Client::greet(&own, &at).await.converse(&vec![seed as u8; 20_000]).await;
        });
        let mut actors = [Actor::of_tasks(&server), Actor::of_tasks(&outside)];
        assert_eq!(world.run(&mut actors, Limits::default(), &mut || played.get()), Ended::Stopped);
    });
}

#[test]
fn bytes_are_returned_over_tcp_and_unix_sockets() {
    let scratch = rig::proc::Scratch::new("echo").unwrap();
    let unix = format!("unix:{}", scratch.path().join("s").display());
    for at in ["127.0.0.1:0", "[::1]:0", &unix] {
        let reactor = Reactor::start(Config::default()).unwrap();
        let core = install(&reactor, 10);
        let at = core.open_portal(at.parse().unwrap()).unwrap();
        let own = reactor.clone();
        let played = client::spawn(&reactor, async move {
            Client::greet(&own, &at).await.converse(&vec![7; 1 << 20]).await;
        });
        client::run(&reactor, || played.get());
    }
}
