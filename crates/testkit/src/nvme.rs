//! NVMe over TCP host over a socket, made of the wire's codecs: commands one at a time, without
//! digests.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use wire::nvme::codes::{admin, event, fabrics, feature, io, log_page, pdu, property};
use wire::nvme::{
    COMMON_LEN, Command, Completion, Configuration, Connect, ConnectData, DYNAMIC_CONTROLLER,
    Extent, Framer, Initialize, Property, Sgl, Status, command_capsule, parse_active_list,
};

/// Longest wait for bytes.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of a block.
const BLOCK: u32 = 512;

/// The names of an association.
#[derive(Clone)]
pub struct Names {
    pub subsystem: String,
    pub host: String,
}

/// A connection that is a queue.
pub struct Queue {
    stream: TcpStream,
    at: SocketAddr,
    names: Names,
    /// CNTLID.
    controller: u16,
    id: u16,
    /// Completions of other commands, which arrived while the end of one was waited for.
    early: VecDeque<Completion>,
}

impl Queue {
    /// The admin queue of a controller that is enabled.
    pub fn admin(at: SocketAddr, names: &Names) -> Queue {
        let mut queue = Queue::connect(at, names, DYNAMIC_CONTROLLER, 0);
        let value = Configuration::ENABLED.0.into();
        let wish = Property { long: false, at: property::CONFIGURATION, value };
        let command = queue.command(admin::FABRICS, fabrics::PROPERTY_SET.into(), wish.dwords());
        let (end, _) = queue.ask(command, 0);
        assert!(end.status.is_good(), "{end:x?}");
        queue
    }

    /// An I/O queue of the same association.
    pub fn io(&self, number: u16) -> Queue {
        Queue::connect(self.at, &self.names, self.controller, number)
    }

    /// Status of a refused association; `None` when the controller accepts these names.
    pub fn refusal(at: SocketAddr, names: &Names) -> Option<Status> {
        Queue::try_connect(at, names, DYNAMIC_CONTROLLER, 0).err()
    }

    fn connect(at: SocketAddr, names: &Names, controller: u16, number: u16) -> Queue {
        let queue = Queue::try_connect(at, names, controller, number);
        queue.unwrap_or_else(|status| panic!("queue {number}: {status:x?}"))
    }

    /// An error is the status of the refusal.
    fn try_connect(
        at: SocketAddr,
        names: &Names,
        controller: u16,
        number: u16,
    ) -> Result<Queue, Status> {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(RECEIVE_TIMEOUT)).unwrap();
        let (names, early) = (names.clone(), VecDeque::new());
        let mut queue = Queue { stream, at, names, controller, id: 0, early };
        queue.stream.write_all(&Initialize::default().encode()).unwrap();
        let (kind, _, _) = queue.receive();
        assert_eq!(kind, pdu::INITIALIZE_RESPONSE);
        let wish = Connect { queue: number, size: 31, ..Connect::default() };
        let data = ConnectData {
            host_id: [7; 16],
            controller,
            subsystem: queue.names.subsystem.clone(),
            host: queue.names.host.clone(),
        };
        let command = queue.command(admin::FABRICS, fabrics::CONNECT.into(), wish.dwords());
        let end = queue.give(command, &data.encode());
        if !end.status.is_good() {
            return Err(end.status);
        }
        if number == 0 {
            queue.controller = end.result as u16;
        }
        Ok(queue)
    }

    fn command(&mut self, opcode: u8, nsid: u32, dwords: [u32; 6]) -> Command {
        self.id = self.id.wrapping_add(1);
        let sgl = Sgl { kind: Sgl::TRANSPORT, ..Sgl::default() };
        Command { opcode, flags: 0x40, id: self.id, nsid, sgl, dwords }
    }

    fn exactly(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.stream.read_exact(&mut out).expect("the connection stays");
        out
    }

    /// The next PDU: its type, its header and its data.
    fn receive(&mut self) -> (u8, Vec<u8>, Vec<u8>) {
        let mut header = self.exactly(COMMON_LEN);
        let framer = Framer { from_controller: true, ..Framer::default() };
        let frame = framer.frame(header.first_chunk().unwrap()).unwrap();
        header.extend(self.exactly(frame.header_len - COMMON_LEN));
        self.exactly(frame.pad_len);
        let data = self.exactly(frame.data_len);
        (frame.common.kind, header, data)
    }

    /// The end of a command, and the data that it returns.
    fn answer(&mut self, id: u16) -> (Completion, Vec<u8>) {
        let mut returned = Vec::new();
        loop {
            let (kind, header, data) = self.receive();
            if kind == pdu::CONTROLLER_DATA {
                returned.extend(data);
                continue;
            }
            assert_eq!(kind, pdu::RESPONSE, "{header:x?}");
            let end = Completion::decode(header[COMMON_LEN..].first_chunk().unwrap());
            if end.id == id {
                return (end, returned);
            }
            self.early.push_back(end);
        }
    }

    /// A command without data, or with data for the host of that length.
    fn ask(&mut self, mut command: Command, len: u32) -> (Completion, Vec<u8>) {
        command.sgl.len = len;
        self.stream.write_all(&command_capsule(&command, 0, 0)).unwrap();
        self.answer(command.id)
    }

    /// A command with data in its capsule.
    fn give(&mut self, mut command: Command, data: &[u8]) -> Completion {
        command.sgl = Sgl { address: 0, len: data.len() as u32, kind: Sgl::IN_CAPSULE };
        let mut bytes = command_capsule(&command, 0, data.len() as u32);
        bytes.extend(data);
        self.stream.write_all(&bytes).unwrap();
        self.answer(command.id).0
    }

    /// Writes blocks.
    pub fn write(&mut self, nsid: u32, lba: u64, data: &[u8]) -> Status {
        let extent = Extent { lba, blocks: data.len() as u32 / BLOCK, ..Extent::default() };
        let command = self.command(io::WRITE, nsid, extent.dwords());
        self.give(command, data).status
    }

    pub fn read(&mut self, nsid: u32, lba: u64, blocks: u32) -> (Status, Vec<u8>) {
        let extent = Extent { lba, blocks, ..Extent::default() };
        let command = self.command(io::READ, nsid, extent.dwords());
        let (end, data) = self.ask(command, blocks * BLOCK);
        (end.status, data)
    }

    /// Requests an event when namespaces change: a request that is not answered before.
    pub fn await_changes(&mut self) {
        let wish = [feature::EVENTS.into(), event::NAMESPACE_BIT, 0, 0, 0, 0];
        let command = self.command(admin::SET_FEATURES, 0, wish);
        let (end, _) = self.ask(command, 0);
        assert!(end.status.is_good(), "{end:x?}");
        let command = self.command(admin::ASYNC_EVENT, 0, [0; 6]);
        self.stream.write_all(&command_capsule(&command, 0, 0)).unwrap();
    }

    /// Namespaces in the list of changes, which is read with it.
    pub fn changed(&mut self) -> Vec<u32> {
        let len = 4096u32;
        let first = u32::from(log_page::CHANGED) | (len / 4 - 1) << 16;
        let command = self.command(admin::GET_LOG_PAGE, 0, [first, 0, 0, 0, 0, 0]);
        let (end, page) = self.ask(command, len);
        assert!(end.status.is_good(), "{end:x?}");
        parse_active_list(&page)
    }

    /// Whether an event has arrived.
    pub fn has_event(&self) -> bool {
        !self.early.is_empty()
    }

    /// Waits for an event.
    pub fn event(&mut self) -> Completion {
        if let Some(end) = self.early.pop_front() {
            return end;
        }
        let (kind, header, _) = self.receive();
        assert_eq!(kind, pdu::RESPONSE, "{header:x?}");
        Completion::decode(header[COMMON_LEN..].first_chunk().unwrap())
    }
}
