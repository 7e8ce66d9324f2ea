//! Edits of the mode of a LUN under hosts that write to it, over iSCSI, NBD and NVMe/TCP. Three
//! hosts of each transport write in threads of their own. The LUN of the first one becomes
//! read-only, and can be written again. Meanwhile its writes are refused as write-protected; its
//! reads and all requests of the others succeed, and no session ends.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mgmt::plan::Risk;
use testkit::iscsi::initiator::{Client as Initiator, rw10};
use testkit::nbd::Client;
use testkit::nvme::{Names, Queue};
use wire::nbd::Error;
use wire::nbd::codes::kind;
use wire::nvme::Status;

use crate::by_hand::Site;
use crate::load::under_load;

const BLOCK: usize = 512;
/// Hosts of a transport; the first one is in a group of its own.
const HOSTS: u8 = 3;

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
        text +=
            &format!("[[target]]\ndriver = '{driver}'\nname = '{name}'\nlisten = ['{listen}']\n");
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
    /// Number of the last round.
    number: u8,
    /// What the block contains.
    stored: Vec<u8>,
    /// Writes that were not refused.
    written: Arc<AtomicU64>,
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
        Host {
            session,
            _admin: admin,
            at,
            is_first: number == 0,
            number: 0,
            stored: vec![0; BLOCK],
            written: Arc::default(),
        }
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

    /// Writes its block and reads it.
    fn round(&mut self) {
        self.number = self.number.wrapping_add(1);
        let data = vec![self.number; BLOCK];
        let is_written = self.write(&data);
        assert!(is_written || self.is_first, "a host of another group is refused");
        if is_written {
            self.stored = data;
            self.written.fetch_add(1, Ordering::Release);
        }
        assert_eq!(self.read(), self.stored, "the last write that was not refused");
    }
}

#[test]
fn mode_of_a_lun_changes_under_hosts_that_write() {
    let site = Site::new("mode-edits", &text("rw"));
    let numbers = TRANSPORTS.into_iter().flat_map(|of| (0..HOSTS).map(move |n| (of, n)));
    let hosts: Vec<Host> = numbers.map(|(of, n)| Host::connect(&site, of, n)).collect();
    let seen: Vec<(bool, Arc<AtomicU64>)> =
        hosts.iter().map(|host| (host.is_first, host.written.clone())).collect();
    let written = || -> Vec<u64> {
        seen.iter().map(|(_, written)| written.load(Ordering::Acquire)).collect()
    };
    let mut first: Vec<String> = TRANSPORTS.iter().map(|of| of.host(0)).collect();
    first.sort();
    under_load(hosts, Host::round, |rounds| {
        for mode in ["ro", "rw", "ro", "rw"] {
            rounds.wait("rounds before the edit");
            let desired = site.read(&text(mode));
            let steps = site.control.plan(&desired).expect("a plan").steps;
            assert!(steps.iter().all(|step| step.risk == Risk::Disruptive), "{steps:?}");
            let mut named: Vec<String> = steps.into_iter().flat_map(|step| step.hosts).collect();
            named.sort();
            named.dedup();
            assert_eq!(named, first, "{mode}");
            site.apply(&desired);
            // A write that was under way ends in the former mode.
            rounds.wait("the end of former writes");
            let before = written();
            rounds.wait(mode);
            for ((is_first, _), (was, is)) in seen.iter().zip(before.iter().zip(written())) {
                assert_eq!(*was == is, *is_first && mode == "ro", "{mode}: {was} to {is} writes");
            }
        }
    });
}
