//! Fabrics commands: Connect and properties (NVMe base 6).

use super::codes::VERSION;
use super::command::Command;
use super::page::{Page, field};

pub const CONNECT_LEN: usize = 1024;

/// Longest NQN, bytes.
pub const NQN_MAX: usize = 223;

/// CNTLID of a host that takes any controller.
pub const DYNAMIC_CONTROLLER: u16 = 0xffff;

/// The fields of a Connect command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connect {
    /// RECFMT.
    pub format: u16,
    /// QID: 0 for the admin queue.
    pub queue: u16,
    /// SQSIZE: entries less one.
    pub size: u16,
    /// CATTR bit 2: SQ flow control is off, SQHD means nothing.
    pub no_flow_control: bool,
    /// KATO: a host that is silent for so long is considered dead, ms; 0 never.
    pub keep_alive_ms: u32,
}

impl Connect {
    pub fn decode(command: &Command) -> Connect {
        let b = command.tail();
        let [attributes] = field(&b, 6);
        Connect {
            format: u16::from_le_bytes(field(&b, 0)),
            queue: u16::from_le_bytes(field(&b, 2)),
            size: u16::from_le_bytes(field(&b, 4)),
            no_flow_control: attributes & 1 << 2 != 0,
            keep_alive_ms: u32::from_le_bytes(field(&b, 8)),
        }
    }

    pub fn dwords(&self) -> [u32; 6] {
        let attributes = u32::from(self.no_flow_control) << 18;
        let first = u32::from(self.format) | u32::from(self.queue) << 16;
        [first, u32::from(self.size) | attributes, self.keep_alive_ms, 0, 0, 0]
    }

    /// Offsets within the command, for IPO.
    pub const QUEUE_AT: u16 = 42;
    /// See [`Connect::QUEUE_AT`].
    pub const SIZE_AT: u16 = 44;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectData {
    pub host_id: [u8; 16],
    /// CNTLID.
    pub controller: u16,
    /// SUBNQN.
    pub subsystem: String,
    /// HOSTNQN.
    pub host: String,
}

impl ConnectData {
    /// Offsets within the data, for IPO.
    pub const HOST_ID_AT: u16 = 0;
    /// See [`ConnectData::HOST_ID_AT`].
    pub const CONTROLLER_AT: u16 = 16;
    /// See [`ConnectData::HOST_ID_AT`].
    pub const SUBSYSTEM_AT: u16 = 256;
    /// See [`ConnectData::HOST_ID_AT`].
    pub const HOST_AT: u16 = 512;

    /// Reads it; an error is the offset of the invalid field.
    pub fn decode(b: &[u8; CONNECT_LEN]) -> Result<ConnectData, u16> {
        let name = |at: u16| {
            let bytes = b.get(usize::from(at)..).and_then(|rest| rest.get(..256)).unwrap_or(&[]);
            let len = bytes.iter().position(|b| *b == 0).filter(|len| *len <= NQN_MAX).ok_or(at)?;
            let text = std::str::from_utf8(bytes.get(..len).unwrap_or(&[])).map_err(|_| at)?;
            if is_nqn(text) { Ok(text.to_owned()) } else { Err(at) }
        };
        let host_id = field(b, 0);
        if host_id == [0; 16] {
            return Err(ConnectData::HOST_ID_AT);
        }
        Ok(ConnectData {
            host_id,
            controller: u16::from_le_bytes(field(b, 16)),
            subsystem: name(ConnectData::SUBSYSTEM_AT)?,
            host: name(ConnectData::HOST_AT)?,
        })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut page = Page::new(CONNECT_LEN);
        page.put(0, &self.host_id).u16(16, self.controller);
        page.name(256, 256, &self.subsystem).name(512, 256, &self.host);
        page.done()
    }
}

/// True for valid names of hosts and subsystems.
pub fn is_nqn(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic();
    name.len() <= NQN_MAX && name.len() > 4 && name.starts_with("nqn.") && name.chars().all(plain)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Property {
    /// Eight bytes; else four.
    pub long: bool,
    /// OFST.
    pub at: u32,
    pub value: u64,
}

impl Property {
    /// Reads the command's dwords; None for a size that does not exist.
    pub fn decode(command: &Command) -> Option<Property> {
        let [size, at, low, high, ..] = command.dwords;
        let long = match size & 7 {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Property { long, at, value: u64::from(high) << 32 | u64::from(low) })
    }

    pub fn dwords(&self) -> [u32; 6] {
        let [a, b, c, d, e, f, g, h] = self.value.to_le_bytes();
        let (low, high) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        [u32::from(self.long), self.at, low, high, 0, 0]
    }
}

/// CAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// MQES: entries of a queue, less one.
    pub entries_max: u16,
    /// TO: how long a change of CC.EN may take, units of 500 ms.
    pub timeout: u8,
}

impl Capabilities {
    /// As the property: queues are contiguous, the NVM command set is served, pages are of 4 KiB.
    pub fn encode(self) -> u64 {
        u64::from(self.entries_max) | 1 << 16 | u64::from(self.timeout) << 24 | 1 << 37
    }
}

/// CC, and the state of CSTS that it causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration(pub u32);

impl Configuration {
    /// EN with the sizes of queue entries that Fabrics have.
    pub const ENABLED: Configuration = Configuration(1 | 6 << 16 | 4 << 20);

    /// EN.
    pub fn is_enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// SHN: the host takes leave.
    pub fn shuts_down(self) -> bool {
        self.0 >> 14 & 3 != 0
    }

    /// Sizes of queue entries, command set, page size and arbitration are those there are.
    pub fn is_served(self) -> bool {
        let cc = self.0;
        let sizes = cc >> 16 & 0xf == 6 && cc >> 20 & 0xf == 4;
        let rest = cc >> 4 & 7 == 0 && cc >> 7 & 0xf == 0 && cc >> 11 & 7 == 0;
        !self.is_enabled() || (sizes && rest)
    }

    /// CSTS.
    pub fn status(self) -> u32 {
        let shut = if self.shuts_down() { 2 << 2 } else { 0 };
        u32::from(self.is_enabled()) | shut
    }
}

const _: () = assert!(VERSION >> 16 == 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_names_must_end_within_their_fields() {
        let good = ConnectData {
            host_id: [7; 16],
            controller: 0xffff,
            subsystem: "nqn.2026-11.test:a".into(),
            host: format!("nqn.{}", "h".repeat(NQN_MAX - 4)),
        };
        let bytes = good.encode();
        let decode = |b: &[u8]| ConnectData::decode(b.first_chunk().unwrap());
        assert_eq!(decode(&bytes), Ok(good));
        for (at, fill, wrong) in [(0..16, 0, 0), (256..512, b'a', 256), (512..513, b'x', 512)] {
            let mut bytes = bytes.clone();
            bytes[at].fill(fill);
            assert_eq!(decode(&bytes), Err(wrong));
        }
        let mut long = bytes;
        long[512 + NQN_MAX] = b'h';
        assert_eq!(decode(&long), Err(512), "one byte too many");
    }

    #[test]
    fn fabrics_commands_decode_as_encoded() {
        let connect =
            Connect { format: 0, queue: 3, size: 127, no_flow_control: true, keep_alive_ms: 5 };
        let command = Command { dwords: connect.dwords(), ..Command::default() };
        assert_eq!(Connect::decode(&command), connect);
        let property = Property { long: true, at: 0x14, value: 1 << 40 | 2 };
        let command = Command { dwords: property.dwords(), ..Command::default() };
        assert_eq!(Property::decode(&command), Some(property));
        assert!(Configuration::ENABLED.is_served() && !Configuration(1).is_served());
        assert_eq!(Configuration(Configuration::ENABLED.0 | 1 << 14).status(), 9);
    }
}
