//! The conversation with the kernel about its network block devices.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};
use wire::netlink::{
    KernelMessage, MESSAGE_MAX, Message, attribute_u16, attribute_u32, control, decode, nbd,
};

use super::host::ErrorText;

/// Longest wait for the kernel's word: it waits itself until requests under way have ended.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// Messages read in answer to one; further ones are not waited for.
const ANSWERS_MAX: u32 = 64;

/// Errno of Linux for a missing object.
const ENOENT: i32 = 2;

/// A socket to the kernel.
pub struct Netlink {
    socket: OwnedFd,
    family: u16,
    sequence: u32,
}

/// A device to be made or changed.
pub struct DeviceRequest<'a> {
    /// Bytes.
    pub size: u64,
    /// Bytes of a block.
    pub block: u64,
    /// Seconds after which a request is sent once more.
    pub timeout: u64,
    /// Seconds that requests wait while no socket is alive.
    pub dead_timeout: u64,
    /// Transmission flags.
    pub flags: u64,
    /// Sockets.
    pub sockets: &'a [OwnedFd],
    /// The text by which the device is recognized later.
    pub backend: &'a str,
}

impl Netlink {
    /// Finds the family; an error names the missing part.
    pub fn open() -> Result<Netlink, ErrorText> {
        let plain = |e: rustix::io::Errno| format!("netlink: {e}");
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(GENERIC),
        )
        .map_err(plain)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(REPLY_TIMEOUT)).map_err(plain)?;
        let mut netlink = Netlink { socket, family: control::FAMILY, sequence: 0 };
        let sequence = netlink.next();
        let mut ask = Message::new(control::FAMILY, control::GET_FAMILY, sequence);
        ask.text(control::FAMILY_NAME, nbd::FAMILY);
        let found = |attributes: &[u8]| attribute_u16(attributes, control::FAMILY_ID);
        match netlink.request(ask, sequence, found) {
            Ok(Some(family)) => netlink.family = family,
            Err(e) if e.raw_os_error() != Some(ENOENT) => return Err(format!("netlink: {e}")),
            _ => {
                let why = "the kernel has no network block devices: load its module `nbd`";
                return Err(why.to_owned());
            }
        }
        Ok(netlink)
    }

    fn next(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Sends a message; answers what `look` finds in a message before the acknowledgement.
    fn request<T>(
        &mut self,
        message: Message,
        sequence: u32,
        look: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &message.finish(), SendFlags::empty(), &kernel)?;
        let mut found = None;
        let mut bytes = vec![0; MESSAGE_MAX];
        for _ in 0..ANSWERS_MAX {
            let (got, _) = recv(&self.socket, &mut bytes[..], RecvFlags::empty())?;
            let mut rest = bytes.get(..got).unwrap_or(&[]);
            while !rest.is_empty() {
                let odd = |e: wire::WireError| io::Error::other(e.to_string());
                let (of, reply, after) = decode(rest).map_err(odd)?;
                rest = after;
                match reply {
                    _ if of != sequence => {}
                    KernelMessage::Ended { errno: 0 } => return Ok(found),
                    KernelMessage::Ended { errno } => {
                        let errno = i32::try_from(errno).unwrap_or(i32::MAX);
                        return Err(io::Error::from_raw_os_error(errno));
                    }
                    KernelMessage::Message { attributes, .. } => found = look(attributes).or(found),
                    KernelMessage::Other => {}
                }
            }
        }
        Err(io::Error::other("the answer of the kernel does not end"))
    }

    /// Makes a device of any number; answers the number.
    pub fn connect(&mut self, wish: &DeviceRequest<'_>) -> io::Result<u32> {
        let sequence = self.next();
        let mut message = Message::new(self.family, nbd::CONNECT, sequence);
        message.u64(nbd::SERVER_FLAGS, wish.flags);
        fill_message(&mut message, wish);
        let made = self.request(message, sequence, |a| attribute_u32(a, nbd::INDEX))?;
        made.ok_or_else(|| io::Error::other("the kernel does not name the new device"))
    }

    /// Gives a device sockets for those that are dead, and the size.
    pub fn reconfigure(&mut self, index: u32, wish: &DeviceRequest<'_>) -> io::Result<()> {
        let sequence = self.next();
        let mut message = Message::new(self.family, nbd::RECONFIGURE, sequence);
        message.u32(nbd::INDEX, index);
        fill_message(&mut message, wish);
        self.request(message, sequence, |_| None::<()>).map(drop)
    }

    /// Ends a device. Requests under way end first; those that no socket can answer end with
    /// errors.
    pub fn disconnect(&mut self, index: u32) -> io::Result<()> {
        let sequence = self.next();
        let mut message = Message::new(self.family, nbd::DISCONNECT, sequence);
        message.u32(nbd::INDEX, index);
        self.request(message, sequence, |_| None::<()>).map(drop)
    }
}

fn fill_message(message: &mut Message, wish: &DeviceRequest<'_>) {
    message.u64(nbd::SIZE_BYTES, wish.size).u64(nbd::BLOCK_SIZE_BYTES, wish.block);
    message.u64(nbd::TIMEOUT, wish.timeout).u64(nbd::DEAD_CONN_TIMEOUT, wish.dead_timeout);
    message.text(nbd::BACKEND_IDENTIFIER, wish.backend);
    let fd = |s: &OwnedFd| u32::try_from(s.as_fd().as_raw_fd()).ok();
    let fds: Vec<u32> = wish.sockets.iter().filter_map(fd).collect();
    if !fds.is_empty() {
        message.sockets(&fds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_without_the_nbd_module_is_reported() {
        // Where the module is there, the family has a number of its own.
        match Netlink::open() {
            Ok(netlink) => assert!(netlink.family > control::FAMILY),
            Err(why) => assert!(why.contains("nbd") || why.contains("netlink"), "{why}"),
        }
    }
}
