//! Consoles over a simulated Ethernet: discovery, editing of lines, lost frames.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::Segs;
use reactor::sim::{Actor, Ended, Limits, SegmentShape, World};
use reactor::{Link, Reactor, SeededRandom};
use testkit::Seeds;
use testkit::clock::MS;
use wire::aoe::Mac;
use wire::cec::{CEC_ETHERTYPE, CecFrame, CecKind};

use super::{BROADCAST, Cec};

const SERVER: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 1, n])
}

/// A client like the first ones: it sends unacknowledged data again.
struct Client {
    reactor: Reactor,
    link: Link,
    mac: Mac,
    conn: u8,
    seq: u8,
    last_rx_seq: Option<u8>,
    text: RefCell<String>,
}

impl Client {
    fn send(&self, to: Mac, kind: CecKind, seq: u8, data: &[u8]) {
        let frame = CecFrame { to, from: self.mac, kind, conn: self.conn, seq, data };
        self.link.send(&frame.encode(), &Segs::default()).unwrap();
        self.link.flush().unwrap();
    }

    /// Receives for a while; data is acknowledged and kept.
    async fn receive_until(&mut self, ns: u64, until: impl Fn(CecKind, u8, &str) -> bool) -> bool {
        let end = self.reactor.now() + ns;
        while self.reactor.now() < end {
            let (mut acks, mut seen) = (Vec::new(), false);
            let (conn, last_seq) = (self.conn, &mut self.last_rx_seq);
            self.link
                .receive(64, &mut |bytes| {
                    let Ok(f) = CecFrame::decode(bytes) else { return };
                    let offer = f.kind == CecKind::Offer;
                    if f.from != SERVER || (f.conn != conn && !offer) {
                        return;
                    }
                    let mut text = self.text.borrow_mut();
                    if offer {
                        text.push_str(&String::from_utf8_lossy(f.data));
                    }
                    if f.kind == CecKind::Data {
                        acks.push(f.seq);
                        if last_seq.is_none_or(|h| f.seq.wrapping_sub(h).cast_signed() > 0) {
                            *last_seq = Some(f.seq);
                            text.push_str(&String::from_utf8_lossy(f.data));
                        }
                    }
                    seen |= until(f.kind, f.seq, &text);
                })
                .unwrap();
            acks.into_iter().for_each(|seq| self.send(SERVER, CecKind::Ack, seq, b""));
            if seen {
                return true;
            }
            self.reactor.sleep(MS).await;
        }
        false
    }

    async fn connect(&mut self) {
        self.last_rx_seq = None;
        loop {
            self.send(SERVER, CecKind::InitA, 0, b"");
            if self.receive_until(200 * MS, |kind, _, _| kind == CecKind::InitB).await {
                break;
            }
        }
        // The last word may be lost: it is sent again until the console sends.
        loop {
            self.send(SERVER, CecKind::InitC, 0, b"");
            if self.receive_until(200 * MS, |_, _, text| text.contains("main: ")).await {
                break;
            }
        }
    }

    async fn types(&mut self, data: &[u8]) {
        self.seq = self.seq.wrapping_add(1);
        let wanted = self.seq;
        loop {
            self.send(SERVER, CecKind::Data, wanted, data);
            let is = move |kind: CecKind, seq: u8, _: &str| kind == CecKind::Ack && seq == wanted;
            if self.receive_until(200 * MS, is).await {
                break;
            }
        }
    }
}

struct Testbed {
    world: World,
    server: Reactor,
    clients: Reactor,
    ran: Rc<RefCell<Vec<String>>>,
}

/// A console whose lines take 20 ms and are echoed.
fn testbed(seed: u64, shape: SegmentShape, stations: u8) -> Testbed {
    let world = World::new(seed);
    let segment = world.segment(shape);
    segment.plug("eth0", SERVER.0, 1500);
    (1..=stations).for_each(|n| segment.plug(&format!("c{n}"), mac(n).0, 1500));
    let (server, clients) =
        (Reactor::simulated(&world, "server"), Reactor::simulated(&world, "clients"));
    let ran: Rc<RefCell<Vec<String>>> = Rc::default();
    let (kept, clock) = (ran.clone(), server.clone());
    let cec = Cec::new(
        &server,
        "main",
        Box::new(move |line| {
            let (kept, clock) = (kept.clone(), clock.clone());
            Box::pin(async move {
                clock.sleep(20 * MS).await;
                kept.borrow_mut().push(line.clone());
                format!("<{line}>\n")
            })
        }),
    );
    let link = super::link(&server, "eth0").unwrap();
    server.spawn("cec", cec.serve(link));
    Testbed { world, server, clients, ran }
}

impl Testbed {
    fn client(&self, n: u8, conn: u8) -> Client {
        let link = self.clients.link(&format!("c{n}"), CEC_ETHERTYPE).unwrap();
        let (reactor, text) = (self.clients.clone(), RefCell::default());
        Client { reactor, link, mac: mac(n), conn, seq: 0, last_rx_seq: None, text }
    }

    fn run(&self, task: impl Future<Output = ()> + 'static) {
        let done = Rc::new(Cell::new(false));
        let end = done.clone();
        self.clients.spawn("test", async move {
            task.await;
            end.set(true);
        });
        let mut actors = [Actor::of_tasks(&self.server), Actor::of_tasks(&self.clients)];
        let limits = Limits { ns: 4_000_000 * MS, steps: 20_000_000 };
        let ended = self.world.run(&mut actors, limits, &mut || done.get());
        assert_eq!(ended, Ended::Stopped, "nothing happens any more");
        drop(actors);
        self.server.shutdown();
        self.clients.shutdown();
    }
}

#[test]
fn discover_gets_an_offer_and_typed_lines_are_echoed_and_edited() {
    let setup = testbed(1, SegmentShape::default(), 1);
    let mut c = setup.client(1, 9);
    let ran = setup.ran.clone();
    setup.run(async move {
        c.send(BROADCAST, CecKind::Discover, 0, b"");
        assert!(c.receive_until(100 * MS, |kind, _, _| kind == CecKind::Offer).await);
        assert!(c.text.borrow().ends_with("-1 main"));
        // Data of no connection is answered with an offer: the client connects again.
        c.text.borrow_mut().clear();
        c.send(SERVER, CecKind::Data, 4, b"lost\r");
        assert!(c.receive_until(100 * MS, |kind, _, _| kind == CecKind::Offer).await);
        c.text.borrow_mut().clear();
        c.connect().await;
        for some in [&b"stax"[..], b"\x7ftw", b"\r"] {
            c.types(some).await;
        }
        assert!(c.receive_until(1000 * MS, |_, _, text| text.ends_with("<statw>\r\nmain: ")).await);
        c.types(b"nonsense\x15who\r").await;
        assert!(c.receive_until(1000 * MS, |_, _, text| text.ends_with("<who>\r\nmain: ")).await);
        let text = c.text.take();
        let wanted =
            "main: stax\u{8} \u{8}tw\r\n<statw>\r\nmain: nonsense^U\r\nwho\r\n<who>\r\nmain: ";
        assert_eq!(text, wanted);
        assert_eq!(*ran.borrow(), ["statw", "who"]);
    });
}

/// C1, C2.
#[test]
fn lines_run_once_in_order_with_whole_answers_on_a_lossy_network() {
    for seed in Seeds::of(25) {
        let shape = SegmentShape {
            delay_ns_max: 30 * MS,
            in_order: false,
            lost_per_million: 100_000,
            doubled_per_million: 100_000,
            ..SegmentShape::default()
        };
        let setup = testbed(seed, shape, 2);
        let (mut c, liar) = (setup.client(1, 9), setup.client(2, 9));
        let ran = setup.ran.clone();
        let reactor = setup.clients.clone();
        // Another station sends any packets.
        setup.clients.spawn("liar", async move {
            let mut random = SeededRandom::new(seed);
            loop {
                let mut bytes: Vec<u8> = (0..80).map(|_| random.below(256) as u8).collect();
                let to = if random.chance(300) { BROADCAST } else { SERVER };
                bytes[..6].copy_from_slice(&to.0);
                bytes[6..12].copy_from_slice(&mac(2).0);
                bytes[12..14].copy_from_slice(&CEC_ETHERTYPE.to_be_bytes());
                bytes[14] = random.below(10) as u8;
                bytes[15] = random.below(40) as u8;
                liar.link.send(&bytes, &Segs::default()).unwrap();
                liar.link.flush().unwrap();
                reactor.sleep(random.below(60 * MS)).await;
            }
        });
        let lines: Vec<String> = (0..12).map(|i| format!("line{i}")).collect();
        let wanted = lines.clone();
        setup.run(async move {
            c.connect().await;
            c.text.borrow_mut().clear();
            for line in &lines {
                c.types(format!("{line}\r").as_bytes()).await;
            }
            let end = |_: CecKind, _: u8, text: &str| text.ends_with("<line11>\r\nmain: ");
            assert!(c.receive_until(60_000 * MS, end).await, "{}", c.text.borrow());
            let text = c.text.take();
            for line in &lines {
                assert_eq!(text.matches(&format!("<{line}>")).count(), 1, "{text}");
            }
        });
        let ran: Vec<String> =
            ran.borrow().iter().filter(|l| l.starts_with("line")).cloned().collect();
        assert_eq!(ran, wanted, "seed {seed}");
    }
}
