//! Get Log Page.

use wire::nvme::codes::log_page as page;
use wire::nvme::{
    Command, Status, changed_namespaces, discovery, effects, error_entries, firmware, health,
    supported_pages,
};

use super::admin::{Admin, AdminAnswer};
use super::queue::Queue;

const MINUTE_NS: u64 = 60_000_000_000;

impl Queue {
    pub fn log_page(&self, admin: &Admin, command: &Command) -> AdminAnswer {
        let [first, second, low, high, ..] = command.dwords;
        let ([id, ..], [upper_a, upper_b, ..]) = (first.to_le_bytes(), second.to_le_bytes());
        let dwords =
            u64::from(first >> 16) | u64::from(u16::from_le_bytes([upper_a, upper_b])) << 16;
        let bytes = (dwords + 1) * 4;
        let from = u64::from(high) << 32 | u64::from(low);
        if bytes > u64::from(super::TRANSFER_MAX) || !from.is_multiple_of(4) {
            return Status::INVALID_FIELD.into();
        }
        let discovers = self.controller.target.is_none();
        let whole = match (id, discovers) {
            (page::SUPPORTED, _) => supported_pages(discovers),
            (page::ERROR, _) => error_entries(),
            (page::HEALTH, false) => self.health(),
            (page::FIRMWARE, false) => firmware(super::FIRMWARE),
            (page::CHANGED, false) => changed_namespaces(&admin.events.borrow().changed()),
            (page::EFFECTS, false) => effects(),
            (page::DISCOVERY, true) => {
                let (generation, records) = self.subsystems();
                discovery(generation, &records)
            }
            _ => return Status::INVALID_LOG_PAGE.into(),
        };
        // RAE: the log page is retained for the next read.
        if first & 1 << 15 == 0 && matches!(id, page::CHANGED | page::DISCOVERY) {
            admin.events.borrow_mut().read();
        }
        let (Ok(from), Ok(bytes)) = (usize::try_from(from), usize::try_from(bytes)) else {
            return Status::INVALID_FIELD.into();
        };
        let Some(rest) = whole.get(from..) else { return Status::INVALID_FIELD.into() };
        let mut part = rest.get(..bytes).unwrap_or(rest).to_vec();
        part.resize(bytes, 0);
        AdminAnswer::Data(part)
    }

    /// Statistics of the host's units; they include the requests of all hosts.
    fn health(&self) -> Vec<u8> {
        let now = self.conn.core.reactor.now();
        let map = self.nexus().map(|n| n.map());
        let (mut read, mut written) = ((0u64, 0u64), (0u64, 0u64));
        for entry in map.iter().flat_map(|m| m.iter()) {
            let counts = entry.device.counts(now);
            let sectors = u64::from(entry.device.block_bytes()) / 512;
            read.0 = read.0.saturating_add(counts.blocks_sent.saturating_mul(sectors));
            read.1 = read.1.saturating_add(counts.read_commands);
            written.0 = written.0.saturating_add(counts.blocks_received.saturating_mul(sectors));
            written.1 = written.1.saturating_add(counts.write_commands);
        }
        health(read, written, now / MINUTE_NS / 60)
    }
}
