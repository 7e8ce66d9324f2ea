//! Get and Set Features.

use engine::ModeBits;
use wire::nvme::codes::{admin as op, feature as id};
use wire::nvme::{Command, Status};

use super::admin::{Admin, AdminAnswer};
use super::queue::Queue;

/// SV: the value is to be kept over a reset.
const SAVE: u32 = 1 << 31;

/// Bytes of the data of Host Behavior Support.
const BEHAVIOR_LEN: usize = 512;

pub(super) fn has_data(command: &Command) -> bool {
    let [first, ..] = command.dwords;
    let [feature, ..] = first.to_le_bytes();
    command.opcode == op::SET_FEATURES && feature == id::HOST_BEHAVIOR
}

impl Queue {
    pub fn get_feature(&self, admin: &Admin, command: &Command) -> AdminAnswer {
        let [first, ..] = command.dwords;
        let [feature, ..] = first.to_le_bytes();
        let discovers = self.controller.target.is_none();
        let value = match feature {
            id::EVENTS => admin.events.borrow().wanted(),
            id::KEEP_ALIVE => admin.keep_alive_ms.get(),
            id::HOST_ID => return AdminAnswer::Data(self.controller.host.id.to_vec()),
            _ if discovers => return Status::INVALID_FIELD.into(),
            id::ARBITRATION | id::POWER | id::TEMPERATURE | id::ERROR_RECOVERY | id::ATOMICITY => 0,
            id::WRITE_CACHE => u32::from(self.is_cached()),
            id::QUEUES => self.granted(u32::MAX),
            id::HOST_BEHAVIOR => {
                let mut data = vec![0; BEHAVIOR_LEN];
                data.iter_mut().take(1).for_each(|acre| *acre = self.controller.delays().into());
                return AdminAnswer::Data(data);
            }
            _ => return Status::INVALID_FIELD.into(),
        };
        AdminAnswer::End(value.into(), Status::SUCCESS)
    }

    /// A Set Features command; `data` is that of the command where it has some.
    pub fn set_feature(
        &self,
        admin: &Admin,
        command: &Command,
        data: Option<&[u8]>,
    ) -> AdminAnswer {
        let [first, value, ..] = command.dwords;
        let [feature, ..] = first.to_le_bytes();
        if first & SAVE != 0 {
            return Status::NOT_SAVEABLE.into();
        }
        match feature {
            id::EVENTS => {
                admin.events.borrow_mut().want(value);
                self.check_changes();
                AdminAnswer::End(0, Status::SUCCESS)
            }
            id::KEEP_ALIVE => {
                admin.keep_alive_ms.set(value);
                AdminAnswer::End(0, Status::SUCCESS)
            }
            id::QUEUES if self.controller.target.is_some() => {
                let most = u32::from(u16::MAX);
                if value & most == most || value >> 16 == most {
                    return Status::INVALID_FIELD.into();
                }
                AdminAnswer::End(self.granted(value).into(), Status::SUCCESS)
            }
            id::HOST_BEHAVIOR if self.controller.target.is_some() => {
                // ACRE; the other fields request features that are not supported.
                match data.filter(|data| data.len() == BEHAVIOR_LEN).and_then(<[u8]>::first) {
                    Some(acre @ (0 | 1)) => self.controller.set_delays(*acre == 1),
                    _ => return Status::INVALID_FIELD.into(),
                }
                AdminAnswer::End(0, Status::SUCCESS)
            }
            id::ARBITRATION
            | id::POWER
            | id::TEMPERATURE
            | id::ERROR_RECOVERY
            | id::WRITE_CACHE
            | id::ATOMICITY
            | id::HOST_ID => Status::NOT_CHANGEABLE.into(),
            _ => Status::INVALID_FIELD.into(),
        }
    }

    /// Some unit has a volatile write cache.
    fn is_cached(&self) -> bool {
        let map = self.nexus().map(|n| n.map());
        map.iter().flat_map(|m| m.iter()).any(|e| e.device.mode().has(ModeBits::WCE))
    }

    /// Number of queues granted to a host that requests `requested`: NSQR and NCQR, from zero.
    fn granted(&self, requested: u32) -> u32 {
        let most = self.controller.target.as_ref().map_or(1, |t| t.params.queues_max);
        let most = u32::from(most.saturating_sub(1));
        let one = |n: u32| n.min(most);
        one(requested & 0xffff) | one(requested >> 16) << 16
    }
}
