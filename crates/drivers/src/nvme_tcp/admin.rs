//! Admin commands.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use reactor::clock::MS;
use transport::ReceiveBuffer;
use wire::nvme::codes::{admin as op, fabrics, property};
use wire::nvme::{Capabilities, Command, Configuration, Frame, Property, Sgl, Status};

use super::close_reason::CloseReason;
use super::events::Events;
use super::features;
use super::protocol::NvmeTcpMessage;
use super::queue::Queue;
use super::tasks::DEPTH;

/// The additional state of an admin queue.
pub(crate) struct Admin {
    pub events: RefCell<Events>,
    /// KATO; 0 never.
    pub keep_alive_ms: Cell<u32>,
    /// Time of the host's last activity, ns.
    last_active_ns: Cell<u64>,
    /// Commands that other cores end.
    remote_aborts: Cell<u16>,
}

impl Admin {
    pub fn new(keep_alive_ms: u32, now: u64) -> Admin {
        Admin {
            events: RefCell::default(),
            keep_alive_ms: Cell::new(keep_alive_ms),
            last_active_ns: Cell::new(now),
            remote_aborts: Cell::new(0),
        }
    }

    /// Commands that have no answer yet.
    pub fn waiting(&self) -> u16 {
        self.events.borrow().waiting() + self.remote_aborts.get()
    }
}

/// How an admin command ends at once.
pub(crate) enum AdminAnswer {
    /// With a result, or an error.
    End(u64, Status),
    /// Well, with data.
    Data(Vec<u8>),
    /// Later.
    None,
}

impl From<Status> for AdminAnswer {
    fn from(status: Status) -> AdminAnswer {
        AdminAnswer::End(0, status)
    }
}

impl Queue {
    pub async fn admin_command(
        self: &Rc<Self>,
        rx: &mut ReceiveBuffer,
        frame: &Frame,
        command: Command,
    ) -> Result<(), CloseReason> {
        let Some(admin) = &self.admin else { return Ok(()) };
        admin.last_active_ns.set(self.conn.core.reactor.now());
        if command.opcode == op::FABRICS {
            return self.fabrics_command(rx, frame, &command).await;
        }
        // The only command with data from the host that it needs.
        let data = match features::has_data(&command) {
            true => self.conn.text(rx, frame).await?,
            false => self.conn.drop_data(rx, frame).await.map(|()| None)?,
        };
        let enabled = self.controller.configuration().is_enabled();
        let answer = match command.opcode {
            op::KEEP_ALIVE => AdminAnswer::End(0, Status::SUCCESS),
            _ if command.fuse() != 0 => Status::INVALID_FIELD.into(),
            _ if !enabled => Status::SEQUENCE.into(),
            op::IDENTIFY => self.identify(&command),
            op::GET_LOG_PAGE => self.log_page(admin, &command),
            op::GET_FEATURES => self.get_feature(admin, &command),
            op::SET_FEATURES => self.set_feature(admin, &command, data.as_deref()),
            op::ASYNC_EVENT => self.event_request(admin, &command),
            op::ABORT => self.abort_command(admin, &command),
            _ => Status::INVALID_OPCODE.into(),
        };
        self.answer(&command, answer);
        Ok(())
    }

    fn answer(&self, command: &Command, answer: AdminAnswer) {
        match answer {
            AdminAnswer::None => {}
            AdminAnswer::End(result, status) => self.end_command(command.id, result, status),
            AdminAnswer::Data(bytes) => match data_for(command, bytes) {
                Ok(bytes) => self.end_with_bytes(command.id, &bytes),
                Err(status) => self.end_command(command.id, 0, status),
            },
        }
    }

    pub async fn fabrics_command(
        &self,
        rx: &mut ReceiveBuffer,
        frame: &Frame,
        command: &Command,
    ) -> Result<(), CloseReason> {
        self.conn.drop_data(rx, frame).await?;
        let answer = match (command.fabrics_type(), self.is_io()) {
            (fabrics::PROPERTY_GET, false) => self.property_get(command),
            (fabrics::PROPERTY_SET, false) => self.property_set(command),
            // A queue is connected once.
            (fabrics::CONNECT, _) => Status::SEQUENCE.into(),
            (fabrics::DISCONNECT, true) => {
                self.end_command(command.id, 0, Status::SUCCESS);
                return Err(CloseReason::Disconnected);
            }
            _ => Status::INVALID_FIELD.into(),
        };
        self.answer(command, answer);
        Ok(())
    }

    fn property_get(&self, command: &Command) -> AdminAnswer {
        let Some(property) = Property::decode(command) else { return Status::INVALID_FIELD.into() };
        let configuration = self.controller.configuration();
        let value = match (property.at, property.long) {
            (property::CAPABILITIES, true) => {
                Capabilities { entries_max: DEPTH - 1, timeout: 20 }.encode()
            }
            (property::VERSION, false) => u64::from(wire::nvme::codes::VERSION),
            (property::CONFIGURATION, false) => u64::from(configuration.0),
            (property::STATUS, false) => u64::from(configuration.status()),
            _ => return Status::INVALID_FIELD.into(),
        };
        AdminAnswer::End(value, Status::SUCCESS)
    }

    fn property_set(&self, command: &Command) -> AdminAnswer {
        let wish = Property::decode(command);
        let value = wish.and_then(|p| u32::try_from(p.value).ok()).map(Configuration);
        let is_cc = wish.is_some_and(|p| p.at == property::CONFIGURATION && !p.long);
        let Some(new) = value.filter(|new| is_cc && new.is_served()) else {
            return Status::INVALID_FIELD.into();
        };
        if let Some(admin) = &self.admin
            && !new.is_enabled()
        {
            // A controller reset discards its event requests.
            admin.events.borrow_mut().reset();
        }
        self.controller.configure(new);
        AdminAnswer::End(0, Status::SUCCESS)
    }

    fn abort_command(&self, admin: &Admin, command: &Command) -> AdminAnswer {
        let [wish, ..] = command.dwords;
        let [a, b, c, d] = wish.to_le_bytes();
        let (queue, id) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        if queue == 0 {
            let found = admin.events.borrow_mut().forget(id);
            if found {
                self.end_command(id, 0, Status::ABORT_REQUESTED);
            }
            return AdminAnswer::End(u64::from(!found), Status::SUCCESS);
        }
        let Some(seat) = self.controller.queue_location(queue) else {
            return Status::INVALID_FIELD.into();
        };
        let asker = (self.conn.core.id, self.conn.number, command.id);
        let order = NvmeTcpMessage::Abort { connection: seat.connection, command: id, asker };
        if !self.conn.core.shared.mailboxes.send(seat.core, order) {
            return AdminAnswer::End(1, Status::SUCCESS);
        }
        admin.remote_aborts.set(admin.remote_aborts.get() + 1);
        AdminAnswer::None
    }

    /// Reports the result of an Abort.
    pub fn aborted(&self, id: u16, done: bool) {
        if let Some(admin) = &self.admin {
            admin.remote_aborts.set(admin.remote_aborts.get().saturating_sub(1));
            self.end_command(id, u64::from(!done), Status::SUCCESS);
        }
    }

    /// Once a watch period: keep alive, and events.
    pub fn check_keep_alive(&self, now: u64, has_traffic: bool) {
        let Some(admin) = &self.admin else { return };
        if has_traffic {
            admin.last_active_ns.set(now);
        }
        let limit_ns = u64::from(admin.keep_alive_ms.get()) * MS;
        if limit_ns > 0 && now.saturating_sub(admin.last_active_ns.get()) > limit_ns {
            return self.conn.io.close(CloseReason::KeepAlive);
        }
        self.check_changes();
    }
}

/// Data of an answer as long as the host's buffer: padded with zeroes where that is longer.
fn data_for(command: &Command, mut bytes: Vec<u8>) -> Result<Vec<u8>, Status> {
    if command.sgl.kind != Sgl::TRANSPORT {
        return Err(Status::SGL_TYPE);
    }
    let transfer_len = usize::try_from(command.sgl.len).unwrap_or(usize::MAX);
    let most = usize::try_from(super::TRANSFER_MAX).unwrap_or(usize::MAX);
    if transfer_len < bytes.len() || transfer_len > most {
        return Err(Status::SGL_LENGTH);
    }
    bytes.resize(transfer_len, 0);
    Ok(bytes)
}
