//! Discovery log: the subsystems that a host may connect to, and their addresses.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use reactor::Address;
use transport::advertised;
use wire::nvme::Subsystem;
use wire::nvme::codes::DISCOVERY_NQN;

use super::NAME;
use super::queue::Queue;
use super::tasks::DEPTH;

fn record(name: &str, at: SocketAddr, number: u16, discovery: bool) -> Subsystem {
    Subsystem {
        discovery,
        name: name.into(),
        address: at.ip().to_canonical().to_string(),
        ipv6: at.ip().to_canonical().is_ipv6(),
        port: at.port(),
        number,
        admin_entries: DEPTH,
    }
}

impl Queue {
    /// Every subsystem that grants the host something, at every portal that does so, and a number
    /// that differs when they do.
    pub fn subsystems(&self) -> (u64, Vec<Subsystem>) {
        let (conn, host) = (&self.conn, &self.controller.host.name);
        let targets = &conn.core.shared.own.targets;
        let mut ports: BTreeMap<SocketAddr, u16> = BTreeMap::new();
        let mut number = |at: SocketAddr| {
            let next = u16::try_from(ports.len() + 1).unwrap_or(u16::MAX);
            *ports.entry(at).or_insert(next)
        };
        let mut all = Vec::new();
        if let Some(at) = conn.local.inet().map(advertised) {
            all.push(record(DISCOVERY_NQN, at, number(at), true));
        }
        for target in targets.all() {
            let Some(port) = conn.core.own.find_target(NAME, &target.spec.name) else {
                continue;
            };
            for at in &target.spec.listen {
                // A wildcard address is replaced by the address that the host connected to.
                let real = targets.portal(at).as_ref().and_then(Address::inet);
                let Some(real) = real else { continue };
                let reached = match (real.ip().is_unspecified(), conn.local.inet()) {
                    (true, Some(local)) => SocketAddr::new(local.ip(), real.port()),
                    _ => real,
                };
                let reached = advertised(reached);
                if port.decide(host, &Address::Inet(reached)).grants() {
                    all.push(record(&target.spec.name, reached, number(reached), false));
                }
            }
        }
        let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        let bytes = wire::nvme::discovery(0, &all);
        (bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step), all)
    }
}
