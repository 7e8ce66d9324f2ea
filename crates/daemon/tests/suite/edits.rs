//! Edits that change nothing for hosts, under sessions of iSCSI, NBD and NVMe/TCP on the same
//! units. No command fails, no connection ends, no condition or event is reported, and the
//! reservation stays. More edits, over iSCSI: `crates/ashlar/tests/live/edits.rs`; over AoE and the
//! local bus: `edits_aoe.rs` and `local_bus.rs` there.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use mgmt::plan::Risk;
use testkit::iscsi::initiator::Client as Initiator;
use testkit::nbd::Client;
use testkit::nvme::{Names, Queue};
use wire::nbd::codes::kind;
use wire::nbd::{Error, Form};
use wire::nvme::Status;
use wire::nvme::codes::event;

use crate::by_hand::Site;

const BYTES: usize = 4096;
const LUNS: [u8; 3] = [0, 1, 2];

struct Target {
    driver: &'static str,
    name: &'static str,
    listen: &'static str,
    /// The host that is connected.
    host: &'static str,
    /// A pattern that fits it and others.
    pattern: &'static str,
    /// A host that never connects.
    other: &'static str,
}

const ISCSI: Target = Target {
    driver: "iscsi",
    name: "iqn.2026-11.test.ashlar:edits",
    listen: "127.0.0.2:0",
    host: "iqn.2026-11.test:host",
    pattern: "iqn.2026-11.test:*",
    other: "iqn.2026-11.test:other",
};

const NBD: Target = Target {
    driver: "nbd",
    name: "edits",
    listen: "127.0.0.1:0",
    host: "ip:127.0.0.1",
    pattern: "ip:127.*",
    other: "ip:10.9.9.9",
};

const NVME: Target = Target {
    driver: "nvme_tcp",
    name: "nqn.2026-11.test.ashlar:edits",
    listen: "127.0.0.3:0",
    host: "nqn.2026-11.test:host",
    pattern: "nqn.2026-11.test:*",
    other: "nqn.2026-11.test:other",
};

/// The parts of a configuration that an edit replaces.
#[derive(Clone, Copy)]
struct Setup {
    group: &'static str,
    by_pattern: bool,
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
            let both = [target.host, target.other];
            match (self.by_pattern, self.own_group) {
                (true, _) => text += &self.access(target, self.group, &[target.pattern]),
                (_, true) => {
                    text += &self.access(target, "own", &[target.host]);
                    text += &self.access(target, self.group, &[target.other]);
                }
                _ => text += &self.access(target, self.group, &both),
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

/// A host of each transport; the initiator has reserved LUN 1.
struct Hosts {
    initiator: Initiator,
    clients: [Client; 3],
    admin: Queue,
    queue: Queue,
    round: u8,
}

impl Hosts {
    fn connect(site: &Site) -> Hosts {
        let state = site.control.plant().state().expect("a state");
        let at = |target: &Target| -> SocketAddr {
            let found = state.targets.iter().find(|t| t.driver == target.driver);
            found.expect("its target").portals[0].parse().expect("an address")
        };
        let mut initiator = Initiator::session(at(&ISCSI), ISCSI.host, ISCSI.name).unwrap();
        for lun in LUNS {
            initiator.lun = lun;
            initiator.must(&[0; 6], 0);
        }
        initiator.lun = 1;
        pr_out(&mut initiator, 6, 0, 1);
        pr_out(&mut initiator, 1, 1, 0);
        let clients = ["0", "1", "2"].map(|export| Client::enter(at(&NBD), Form::Simple, export));
        let names = Names { subsystem: NVME.name.into(), host: NVME.host.into() };
        let mut admin = Queue::admin(at(&NVME), &names);
        admin.await_changes();
        let queue = admin.io(1);
        Hosts { initiator, clients, admin, queue, round: 0 }
    }

    /// Every host uses both units in its present session, and no change is reported to it.
    fn work(&mut self, what: &str) {
        self.round += 1;
        let (data, len) = (vec![self.round; BYTES], BYTES as u64);
        let [free, reserved, layered] = &mut self.clients;
        assert_eq!(free.ask(kind::WRITE, 0, 0, len, &data).error, None, "{what}: NBD");
        assert_eq!(free.ask(kind::READ, 0, 0, len, &[]).bytes(0), data, "{what}: NBD");
        assert_eq!(reserved.ask(kind::READ, 0, 0, len, &[]).error, None, "{what}: NBD");
        let conflict = reserved.ask(kind::WRITE, 0, 0, len, &data).error;
        assert_eq!(conflict, Some(Error::Perm), "{what}: NBD, reserved");
        assert_eq!(layered.ask(kind::WRITE, 0, 0, len, &data).error, None, "{what}: NBD");
        let blocks = (BYTES / 512) as u32;
        assert_eq!(self.queue.write(1, 64, &data), Status::SUCCESS, "{what}: NVMe");
        let read = self.queue.read(1, 64, blocks);
        assert_eq!(read, (Status::SUCCESS, data.clone()), "{what}: NVMe");
        assert_eq!(self.queue.read(2, 64, blocks).0, Status::SUCCESS, "{what}: NVMe");
        let conflict = self.queue.write(2, 64, &data);
        assert_eq!(conflict, Status::RESERVATION_CONFLICT, "{what}: NVMe, reserved");
        assert_eq!(self.queue.write(3, 64, &data), Status::SUCCESS, "{what}: NVMe");
        let changed = self.admin.changed();
        assert!(changed.is_empty(), "{what}: namespaces {changed:?} changed");
        assert!(!self.admin.has_event(), "{what}: an event");
        for lun in LUNS {
            self.initiator.lun = lun;
            let ended = self.initiator.scsi(&[0; 6], 0, &[]).unwrap();
            assert_eq!(ended.status, 0, "{what}: LUN {lun}: {:02x?}", ended.sense);
        }
        self.initiator.lun = 1;
        let (keys, held) = (pr_in(&mut self.initiator, 0), pr_in(&mut self.initiator, 1));
        assert_eq!((keys[7], keys[15]), (8, 1), "{what}: the registration: {keys:02x?}");
        assert_eq!((held[7], held[15], held[21]), (16, 1, 1), "{what}: {held:02x?}");
    }
}

/// Applies a configuration that no host notices, according to the plan.
fn edit(site: &Site, hosts: &mut Hosts, what: &str, setup: &Setup) {
    let desired = site.read(&setup.text());
    let steps = site.control.plan(&desired).expect("a plan").steps;
    assert!(!steps.is_empty(), "{what}: nothing to do");
    let risk = steps.iter().find(|step| step.risk != Risk::Safe);
    assert!(risk.is_none(), "{what}: {risk:?}");
    site.apply(&desired);
    hosts.work(what);
}

#[test]
fn edits_cost_no_transport_a_command_an_event_or_a_reservation() {
    let site = Site::new("edits", &PLAIN.text());
    let mut hosts = Hosts::connect(&site);
    hosts.work("at first");
    for (what, setup) in EDITS {
        for (way, setup) in [("there", setup), ("back", PLAIN)] {
            edit(&site, &mut hosts, &format!("{what}, {way}"), &setup);
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
    let pinned: &str = String::leak(units.iter().map(unit).collect());
    let pinned = Setup { more: pinned, ..PLAIN };
    edit(&site, &mut hosts, "serial numbers written down", &pinned);
    // The first event of all is that of a change which concerns the host.
    site.apply(&site.read(&Setup { read_only: true, ..pinned }.text()));
    assert_eq!(hosts.admin.event().result, u64::from(event::NAMESPACE_CHANGED));
    assert_eq!(hosts.admin.changed(), [1]);
}
