//! Edits that change nothing for hosts, under the load of three hosts of NBD and of NVMe/TCP and of
//! an iSCSI host on the same units. No command fails, no connection ends, no condition or event is
//! reported, and the reservation stays. More edits, over iSCSI:
//! `crates/ashlar/tests/live/edits.rs`; over AoE and the local bus: `edits_aoe.rs` and
//! `local_bus.rs` there.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use mgmt::plan::Risk;
use testkit::iscsi::initiator::Client as Initiator;
use testkit::nbd::Client;
use testkit::nvme::{Names, Queue};
use wire::nbd::Error;
use wire::nbd::codes::kind;
use wire::nvme::Status;
use wire::nvme::codes::event;

use crate::by_hand::Site;
use crate::load::{Rounds, under_load};

const BYTES: usize = 4096;
const LUNS: [u8; 3] = [0, 1, 2];

struct Target {
    driver: &'static str,
    name: &'static str,
    listen: &'static str,
    /// The hosts that are connected.
    hosts: &'static [&'static str],
    /// A pattern that fits them and others.
    pattern: &'static str,
    /// A host that never connects.
    other: &'static str,
}

const ISCSI: Target = Target {
    driver: "iscsi",
    name: "iqn.2026-11.test.ashlar:edits",
    listen: "127.0.0.2:0",
    hosts: &["iqn.2026-11.test:host"],
    pattern: "iqn.2026-11.test:*",
    other: "iqn.2026-11.test:other",
};

const NBD: Target = Target {
    driver: "nbd",
    name: "edits",
    listen: "127.0.0.1:0",
    hosts: &["ip:127.0.0.21", "ip:127.0.0.22", "ip:127.0.0.23"],
    pattern: "ip:127.*",
    other: "ip:10.9.9.9",
};

const NVME: Target = Target {
    driver: "nvme_tcp",
    name: "nqn.2026-11.test.ashlar:edits",
    listen: "127.0.0.3:0",
    hosts: &["nqn.2026-11.test:a", "nqn.2026-11.test:b", "nqn.2026-11.test:c"],
    pattern: "nqn.2026-11.test:*",
    other: "nqn.2026-11.test:other",
};

/// The parts of a configuration that an edit replaces.
#[derive(Clone, Copy)]
struct Setup {
    group: &'static str,
    by_pattern: bool,
    /// The first host of each target is in a group of its own, and so are the others.
    own_group: bool,
    /// LUN 0 is read-only for the hosts that never connect, where those have a group of their own.
    others_read_only: bool,
    /// The groups admit hosts at the address of the target only.
    portals: bool,
    /// Another address at which each target listens.
    second_address: bool,
    /// Name of the second disk.
    disk: &'static str,
    /// LUN 0 is read-only for NVMe hosts.
    read_only: bool,
    /// Parameters of the layer below LUN 2.
    layer: &'static str,
    more: &'static str,
}

const PLAIN: Setup = Setup {
    group: "all",
    by_pattern: false,
    own_group: false,
    others_read_only: false,
    portals: false,
    second_address: false,
    disk: "d1",
    read_only: false,
    layer: "",
    more: "",
};

const EDITS: [(&str, Setup); 11] = [
    ("group renamed", Setup { group: "most", ..PLAIN }),
    ("pattern widened", Setup { by_pattern: true, ..PLAIN }),
    ("host in a group of its own", Setup { own_group: true, ..PLAIN }),
    ("mode of others", Setup { own_group: true, others_read_only: true, ..PLAIN }),
    ("portals of the groups", Setup { portals: true, ..PLAIN }),
    ("another address", Setup { second_address: true, ..PLAIN }),
    ("thresholds", Setup { more: "[[unit]]\nprovider = 'd0'\nthresholds = [50]\n", ..PLAIN }),
    ("disk renamed", Setup { disk: "data", ..PLAIN }),
    ("limit of a layer", Setup { layer: "iops = 100000\nburst_ms = 50\n", ..PLAIN }),
    (
        "standby port group without a target",
        Setup { more: "[[alua]]\nname = 'side'\nid = 20\nstate = 'standby'\n", ..PLAIN },
    ),
    (
        "another disk",
        Setup {
            more: "[[disk]]\nname = 'd3'\nkind = 'file'\npath = 'd3.img'\ncreate = true\n\
                   size = '1MiB'\n",
            ..PLAIN
        },
    ),
];

fn disk(name: &str, image: &str) -> String {
    format!(
        "[[disk]]\nname = '{name}'\nkind = 'file'\npath = '{image}'\ncreate = true\n\
         size = '16MiB'\n"
    )
}

impl Setup {
    fn text(&self) -> String {
        let mut text = disk("d0", "d0.img") + &disk(self.disk, "d1.img") + &disk("d2", "d2.img");
        text += "[[geom]]\nclass = 'limit'\nname = 'l'\nprovider = 'd2'\n";
        text += self.layer;
        for target in [&ISCSI, &NBD, &NVME] {
            let second = target.listen.replace("127.0.0", "127.0.1");
            let second = if self.second_address { format!(", '{second}'") } else { String::new() };
            text += &format!(
                "[[target]]\ndriver = '{}'\nname = '{}'\nlisten = ['{}'{second}]\n",
                target.driver, target.name, target.listen
            );
            let (first, others) = target.hosts.split_first().expect("a host");
            match (self.by_pattern, self.own_group) {
                (true, _) => text += &self.access(target, self.group, &[target.pattern]),
                (_, true) => {
                    text += &self.access(target, "own", &[*first]);
                    if !others.is_empty() {
                        text += &self.access(target, "rest", others);
                    }
                    text += &self.access(target, self.group, &[target.other]);
                }
                _ => {
                    let all = [target.hosts, &[target.other]].concat();
                    text += &self.access(target, self.group, &all);
                }
            }
        }
        text + self.more
    }

    fn access(&self, target: &Target, group: &str, initiators: &[&str]) -> String {
        let is_read = self.read_only && target.driver == NVME.driver
            || self.others_read_only && initiators == [target.other];
        let mode = if is_read { "ro" } else { "rw" };
        let (name, disk) = (target.name, self.disk);
        let (address, _) = target.listen.split_once(':').expect("an address");
        let portals =
            if self.portals { format!("portals = ['{address}']\n") } else { String::new() };
        format!(
            "[[access]]\ntarget = '{name}'\ngroup = '{group}'\ninitiators = {initiators:?}\n\
             {portals}luns = {{ 0 = {{ provider = 'd0', mode = '{mode}' }}, 1 = '{disk}', \
             2 = 'l' }}\n"
        )
    }
}

/// PERSISTENT RESERVE OUT of type write exclusive, without APTPL.
fn pr_out(initiator: &mut Initiator, action: u8, key: u8, action_key: u8) {
    let mut list = [0; 24];
    (list[7], list[15]) = (key, action_key);
    let cdb = [0x5F, action, 1, 0, 0, 0, 0, 0, 24, 0];
    assert_eq!(initiator.scsi(&cdb, 0, &list).unwrap().status, 0, "reserve {action}");
}

/// PERSISTENT RESERVE IN.
fn pr_in(initiator: &mut Initiator, action: u8) -> Vec<u8> {
    initiator.must(&[0x5E, action, 0, 0, 0, 0, 0, 0x10, 0, 0], BYTES as u32)
}

/// A host with its sessions. The initiator has reserved LUN 1.
enum Session {
    Iscsi(Initiator),
    /// At each of the three exports.
    Nbd([Client; 3]),
    Nvme {
        admin: Queue,
        queue: Queue,
    },
}

struct Host {
    session: Session,
    /// The place of its own blocks among those of all hosts.
    place: u64,
    round: u8,
}

/// The address of a target.
fn address(site: &Site, target: &Target) -> SocketAddr {
    let state = site.control.plant().state().expect("a state");
    let found = state.targets.iter().find(|t| t.driver == target.driver);
    found.expect("its target").portals[0].parse().expect("an address")
}

fn initiator(site: &Site) -> Session {
    let at = address(site, &ISCSI);
    let mut initiator = Initiator::session(at, ISCSI.hosts[0], ISCSI.name).unwrap();
    for lun in LUNS {
        initiator.lun = lun;
        initiator.must(&[0; 6], 0);
    }
    initiator.lun = 1;
    pr_out(&mut initiator, 6, 0, 1);
    pr_out(&mut initiator, 1, 1, 0);
    Session::Iscsi(initiator)
}

fn nbd_client(site: &Site, host: &str) -> Session {
    let source: Ipv4Addr = host.strip_prefix("ip:").expect("a prefix").parse().expect("an address");
    let at = address(site, &NBD);
    Session::Nbd(["0", "1", "2"].map(|export| Client::enter_from(source, at, export)))
}

fn nvme_host(site: &Site, host: &str) -> Session {
    let names = Names { subsystem: NVME.name.into(), host: host.into() };
    let mut admin = Queue::admin(address(site, &NVME), &names);
    admin.await_changes();
    let queue = admin.io(1);
    Session::Nvme { admin, queue }
}

/// All hosts. The initiator reserves before the others work.
fn connect(site: &Site) -> Vec<Host> {
    let mut sessions = vec![initiator(site)];
    sessions.extend(NBD.hosts.iter().map(|host| nbd_client(site, host)));
    sessions.extend(NVME.hosts.iter().map(|host| nvme_host(site, host)));
    let host = |(place, session)| Host { session, place, round: 0 };
    (0u64..).zip(sessions).map(host).collect()
}

impl Host {
    /// Uses all units in the present sessions. No change is reported.
    fn work(&mut self) {
        self.round = self.round.wrapping_add(1);
        let (data, len) = (vec![self.round; BYTES], BYTES as u64);
        match &mut self.session {
            Session::Iscsi(initiator) => check_reservation(initiator),
            Session::Nbd([free, reserved, layered]) => {
                let at = self.place * len;
                assert_eq!(free.ask(kind::WRITE, 0, at, len, &data).error, None);
                assert_eq!(free.ask(kind::READ, 0, at, len, &[]).bytes(at), data);
                assert_eq!(reserved.ask(kind::READ, 0, at, len, &[]).error, None);
                let conflict = reserved.ask(kind::WRITE, 0, at, len, &data).error;
                assert_eq!(conflict, Some(Error::Perm), "reserved");
                assert_eq!(layered.ask(kind::WRITE, 0, at, len, &data).error, None);
            }
            Session::Nvme { admin, queue } => {
                let blocks = (BYTES / 512) as u32;
                let at = self.place * u64::from(blocks);
                assert_eq!(queue.write(1, at, &data), Status::SUCCESS);
                assert_eq!(queue.read(1, at, blocks), (Status::SUCCESS, data.clone()));
                assert_eq!(queue.read(2, at, blocks).0, Status::SUCCESS);
                let conflict = queue.write(2, at, &data);
                assert_eq!(conflict, Status::RESERVATION_CONFLICT, "reserved");
                assert_eq!(queue.write(3, at, &data), Status::SUCCESS);
                let changed = admin.changed();
                assert!(changed.is_empty(), "namespaces {changed:?} changed");
                assert!(!admin.has_event(), "an event");
            }
        }
    }
}

/// All LUNs are ready without a condition, and the registration and reservation are there.
fn check_reservation(initiator: &mut Initiator) {
    for lun in LUNS {
        initiator.lun = lun;
        let ended = initiator.scsi(&[0; 6], 0, &[]).unwrap();
        assert_eq!(ended.status, 0, "LUN {lun}: {:02x?}", ended.sense);
    }
    initiator.lun = 1;
    let (keys, held) = (pr_in(initiator, 0), pr_in(initiator, 1));
    assert_eq!((keys[7], keys[15]), (8, 1), "the registration: {keys:02x?}");
    assert_eq!((held[7], held[15], held[21]), (16, 1, 1), "{held:02x?}");
}

/// Applies a configuration that no host notices, according to the plan.
fn edit(site: &Site, rounds: &Rounds, what: &str, setup: &Setup) {
    let desired = site.read(&setup.text());
    let steps = site.control.plan(&desired).expect("a plan").steps;
    assert!(!steps.is_empty(), "{what}: nothing to do");
    let risk = steps.iter().find(|step| step.risk != Risk::Safe);
    assert!(risk.is_none(), "{what}: {risk:?}");
    site.apply(&desired);
    rounds.wait(what);
}

#[test]
fn edits_cost_no_transport_a_command_an_event_or_a_reservation() {
    let site = Site::new("edits", &PLAIN.text());
    let mut pinned = PLAIN;
    let hosts = under_load(connect(&site), Host::work, |rounds| {
        rounds.wait("at first");
        for (what, setup) in EDITS {
            for (way, setup) in [("there", setup), ("back", PLAIN)] {
                edit(&site, rounds, &format!("{what}, {way}"), &setup);
            }
        }
        // The serial numbers that hosts know are written down.
        let state = site.control.plant().state().expect("a state");
        let luns = state.targets.iter().flat_map(|t| &t.groups).flat_map(|g| &g.luns);
        let units: BTreeMap<&str, &str> =
            luns.map(|lun| (lun.provider.as_str(), lun.serial.as_str())).collect();
        let unit = |(provider, serial): (&&str, &&str)| {
            format!("[[unit]]\nprovider = '{provider}'\nserial = '{serial}'\n")
        };
        pinned.more = String::leak(units.iter().map(unit).collect());
        edit(&site, rounds, "serial numbers written down", &pinned);
    });
    // The first event of all is that of a change which concerns the host.
    site.apply(&site.read(&Setup { read_only: true, ..pinned }.text()));
    for host in hosts {
        if let Session::Nvme { mut admin, .. } = host.session {
            assert_eq!(admin.event().result, u64::from(event::NAMESPACE_CHANGED));
            assert_eq!(admin.changed(), [1]);
        }
    }
}
