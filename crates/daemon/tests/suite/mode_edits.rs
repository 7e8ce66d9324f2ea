//! Edits of the mode of a LUN under hosts that write to it, over iSCSI, NBD and NVMe/TCP. Three
//! hosts of each transport write in threads of their own. The LUN of the first one becomes
//! read-only, and can be written again. Meanwhile its writes are refused as write-protected; its
//! reads and all requests of the others succeed, and no session ends.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mgmt::plan::Risk;
use testkit::iscsi::initiator::{Client as Initiator, rw10};
use testkit::nbd::Client;
use testkit::nvme::{Names, Queue};
use testkit::until;
use wire::nbd::Error;
use wire::nbd::codes::kind;
use wire::nvme::Status;

use crate::by_hand::Site;

const BLOCK: usize = 512;
/// Hosts of a transport; the first one is in a group of its own.
const HOSTS: u8 = 3;
/// Rounds of each host that are waited for.
const ROUNDS: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Iscsi,
    Nbd,
    Nvme,
}

const TRANSPORTS: [Transport; 3] = [Transport::Iscsi, Transport::Nbd, Transport::Nvme];

impl Transport {
    /// Driver, name and address of the target.
    fn target(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Transport::Iscsi => ("iscsi", "iqn.2026-11.test.ashlar:mode", "127.0.0.2:0"),
            Transport::Nbd => ("nbd", "mode", "127.0.0.1:0"),
            Transport::Nvme => ("nvme_tcp", "nqn.2026-11.test.ashlar:mode", "127.0.0.3:0"),
        }
    }

    /// The name of a host.
    fn host(self, number: u8) -> String {
        match self {
            Transport::Iscsi => format!("iqn.2026-11.test:h{number}"),
            Transport::Nbd => format!("ip:{}", source(number)),
            Transport::Nvme => format!("nqn.2026-11.test:h{number}"),
        }
    }
}

/// The address of an NBD host.
fn source(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 11 + number)
}

/// The configuration in which the first hosts have LUN 0 in a mode.
fn text(mode: &str) -> String {
    let mut text = "[[disk]]\nname = 'd0'\nkind = 'memory'\nsize = '1MiB'\n".to_owned();
    for transport in TRANSPORTS {
        let (driver, name, listen) = transport.target();
        text += &format!(
            "[[target]]\ndriver = '{driver}'\nname = '{name}'\nlisten = ['{listen}']\n"
        );
        let others: Vec<String> = (1..HOSTS).map(|number| transport.host(number)).collect();
        let groups = [("first", vec![transport.host(0)], mode), ("others", others, "rw")];
        for (group, initiators, mode) in groups {
            text += &format!(
                "[[access]]\ntarget = '{name}'\ngroup = '{group}'\ninitiators = {initiators:?}\n\
                 luns = {{ 0 = {{ provider = 'd0', mode = '{mode}' }} }}\n"
            );
        }
    }
    text
}

enum Session {
    Iscsi(Initiator),
    Nbd(Client),
    Nvme(Queue),
}

struct Host {
    session: Session,
    /// The admin queue of an NVMe host, which keeps its controller.
    _admin: Option<Queue>,
    /// The block that it writes.
    at: u32,
    /// Its writes may be refused.
    is_first: bool,
}

impl Host {
    fn connect(site: &Site, transport: Transport, number: u8) -> Host {
        let (driver, name, _) = transport.target();
        let state = site.control.plant().state().expect("a state");
        let target = state.targets.iter().find(|target| target.driver == driver);
        let at: SocketAddr = target.expect("its target").portals[0].parse().expect("an address");
        let mut admin = None;
        let session = match transport {
            Transport::Iscsi => {
                let own = transport.host(number);
                let mut host = Initiator::session(at, &own, name).expect("a login");
                host.must(&[0; 6], 0);
                Session::Iscsi(host)
            }
            Transport::Nbd => Session::Nbd(Client::enter_from(source(number), at, "0")),
            Transport::Nvme => {
                let names = Names { subsystem: name.into(), host: transport.host(number) };
                let queue = admin.insert(Queue::admin(at, &names)).io(1);
                Session::Nvme(queue)
            }
        };
        let place = TRANSPORTS.iter().position(|one| *one == transport).expect("in the list");
        let at = place as u32 * u32::from(HOSTS) + u32::from(number);
        Host { session, _admin: admin, at, is_first: number == 0 }
    }

    /// Writes its block; false: refused as write-protected.
    fn write(&mut self, data: &[u8]) -> bool {
        let at = self.at;
        match &mut self.session {
            Session::Iscsi(host) => {
                let ended = host.scsi(&rw10(0x2A, at, 1), 0, data).expect("its session");
                let is_protected = ended.sense.get(2).is_some_and(|key| key & 0xF == 7);
                assert!(ended.status == 0 || is_protected, "iSCSI: {:02x?}", ended.sense);
                ended.status == 0
            }
            Session::Nbd(host) => {
                let ended = host.ask(kind::WRITE, 0, u64::from(at) * 512, 512, data).error;
                assert!(ended.is_none() || ended == Some(Error::Perm), "NBD: {ended:?}");
                ended.is_none()
            }
            Session::Nvme(queue) => {
                let status = queue.write(1, at.into(), data);
                let is_known = status == Status::SUCCESS || status == Status::WRITE_PROTECTED;
                assert!(is_known, "NVMe: {status:x?}");
                status == Status::SUCCESS
            }
        }
    }

    fn read(&mut self) -> Vec<u8> {
        let at = self.at;
        match &mut self.session {
            Session::Iscsi(host) => {
                let ended = host.scsi(&rw10(0x28, at, 1), BLOCK as u32, &[]).expect("its session");
                assert_eq!(ended.status, 0, "iSCSI: {:02x?}", ended.sense);
                ended.data
            }
            Session::Nbd(host) => {
                let at = u64::from(at) * 512;
                host.ask(kind::READ, 0, at, 512, &[]).bytes(at)
            }
            Session::Nvme(queue) => {
                let (status, data) = queue.read(1, at.into(), 1);
                assert_eq!(status, Status::SUCCESS, "NVMe");
                data
            }
        }
    }

    /// Writes and reads until the end of the test.
    fn work(mut self, seen: &Progress, is_over: &AtomicBool) {
        let (mut stored, mut round) = (vec![0; BLOCK], 0u8);
        while !is_over.load(Ordering::Acquire) {
            round = round.wrapping_add(1);
            let data = vec![round; BLOCK];
            let is_written = self.write(&data);
            assert!(is_written || self.is_first, "a host of another group is refused");
            if is_written {
                stored = data;
                seen.written.fetch_add(1, Ordering::Release);
            }
            assert_eq!(self.read(), stored, "the last write that was not refused");
            seen.rounds.fetch_add(1, Ordering::Release);
        }
    }
}

/// Counts of a host, which its thread updates.
#[derive(Default)]
struct Progress {
    rounds: AtomicU64,
    written: AtomicU64,
}

impl Progress {
    fn counts(&self) -> (u64, u64) {
        (self.rounds.load(Ordering::Acquire), self.written.load(Ordering::Acquire))
    }
}

/// Ends the threads of the hosts, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Waits until every host has made some rounds; the number of writes of each meanwhile.
fn written_in_some_rounds(all: &[Progress], what: &str) -> Vec<u64> {
    let before: Vec<(u64, u64)> = all.iter().map(Progress::counts).collect();
    until(what, || all.iter().zip(&before).all(|(one, was)| one.counts().0 >= was.0 + ROUNDS));
    all.iter().zip(&before).map(|(one, was)| one.counts().1 - was.1).collect()
}

#[test]
fn mode_of_a_lun_changes_under_hosts_that_write() {
    let site = Site::new("mode-edits", &text("rw"));
    let numbers = TRANSPORTS.into_iter().flat_map(|of| (0..HOSTS).map(move |n| (of, n)));
    let hosts: Vec<Host> = numbers.map(|(of, n)| Host::connect(&site, of, n)).collect();
    let all: Vec<Progress> = hosts.iter().map(|_| Progress::default()).collect();
    let is_first: Vec<bool> = hosts.iter().map(|host| host.is_first).collect();
    let mut first: Vec<String> = TRANSPORTS.iter().map(|of| of.host(0)).collect();
    first.sort();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&is_over);
        for (host, seen) in hosts.into_iter().zip(&all) {
            let is_over = &is_over;
            scope.spawn(move || host.work(seen, is_over));
        }
        for mode in ["ro", "rw", "ro", "rw"] {
            written_in_some_rounds(&all, "rounds before the edit");
            let desired = site.read(&text(mode));
            let steps = site.control.plan(&desired).expect("a plan").steps;
            assert!(steps.iter().all(|step| step.risk == Risk::Disruptive), "{steps:?}");
            let mut named: Vec<String> = steps.into_iter().flat_map(|step| step.hosts).collect();
            named.sort();
            named.dedup();
            assert_eq!(named, first, "{mode}");
            site.apply(&desired);
            // A write that was under way ends in the former mode.
            written_in_some_rounds(&all, "the end of former writes");
            for (written, is_first) in written_in_some_rounds(&all, mode).iter().zip(&is_first) {
                assert_eq!(*written == 0, *is_first && mode == "ro", "{mode}: {written} writes");
            }
        }
    });
}
