//! Requests.
//!
//! Invariants
//!  R1  The length in a request's header equals that of the message; the operation's fields are
//!      inside it.

use super::codes::opcode;
use crate::bytes::Reader;
use crate::error::WireError;

pub const REQUEST_HEAD: usize = 40;

/// Bytes before the data of a WRITE.
pub const WRITE_HEAD: usize = 80;

/// Bytes of INIT as the oldest kernels that are talked to send it.
pub const INIT_LEN: usize = REQUEST_HEAD + 16;

/// Longest name, bytes.
pub const NAME_MAX: usize = 255;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole request.
    pub len: u32,
    /// The operation code.
    pub opcode: u32,
    /// The kernel's name for it, given back with the reply.
    pub unique: u64,
    /// The file or folder.
    pub node: u64,
    /// The caller's user.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
    /// The caller's process.
    pub pid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The first request.
    Init {
        /// The kernel's version.
        major: u32,
        /// The kernel's version.
        minor: u32,
        /// Longest read ahead that the kernel wants, bytes.
        readahead: u32,
        /// The kernel's capabilities.
        flags: u32,
    },
    /// The node of a name in a folder.
    Lookup {
        /// The name, without its zero.
        name: &'a [u8],
    },
    /// The kernel has forgotten one node or several; no reply.
    Forget,
    /// Attributes.
    Getattr,
    /// Changes attributes.
    Setattr {
        /// Which ones, by bits.
        valid: u32,
    },
    /// Opens a file.
    Open {
        /// Flags of open(2).
        flags: u32,
    },
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u32,
    },
    /// Writes; the data begins at [`WRITE_HEAD`].
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u32,
    },
    /// Facts about the file system.
    Statfs,
    /// The last descriptor is closed.
    Release,
    /// Makes writes durable.
    Fsync,
    /// A descriptor is closed.
    Flush,
    /// Opens a folder.
    Opendir,
    /// Reads a folder.
    Readdir {
        /// Entries to leave out.
        offset: u64,
        /// Bytes that the reply may have.
        size: u32,
    },
    /// Closes a folder.
    Releasedir,
    /// Makes a folder durable.
    Fsyncdir,
    /// Checks access permissions.
    Access,
    /// Interrupts a request: its caller no longer waits.
    Interrupt {
        /// Which request.
        unique: u64,
    },
    /// The last request.
    Destroy,
    /// Holes and zeroes.
    Fallocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        mode: u32,
    },
    /// Where data or holes begin.
    Lseek {
        /// From where on.
        offset: u64,
        /// The type of region to find.
        whence: u32,
    },
    /// Anything else.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    pub header: Header,
    pub operation: Operation<'a>,
}

fn u32_of(r: &mut Reader<'_>, field: &'static str) -> Result<u32, WireError> {
    Ok(u32::from_ne_bytes(r.array(field)?))
}

fn u64_of(r: &mut Reader<'_>, field: &'static str) -> Result<u64, WireError> {
    Ok(u64::from_ne_bytes(r.array(field)?))
}

impl Header {
    pub fn decode(bytes: &[u8]) -> Result<Header, WireError> {
        let mut r = Reader::new(bytes);
        let header = Header {
            len: u32_of(&mut r, "len")?,
            opcode: u32_of(&mut r, "opcode")?,
            unique: u64_of(&mut r, "unique")?,
            node: u64_of(&mut r, "nodeid")?,
            uid: u32_of(&mut r, "uid")?,
            gid: u32_of(&mut r, "gid")?,
            pid: u32_of(&mut r, "pid")?,
        };
        r.take(4, "total_extlen")?;
        Ok(header)
    }

    /// Appends the header, for tests and tools.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for word in [self.len, self.opcode] {
            out.extend(word.to_ne_bytes());
        }
        for word in [self.unique, self.node] {
            out.extend(word.to_ne_bytes());
        }
        for word in [self.uid, self.gid, self.pid, 0] {
            out.extend(word.to_ne_bytes());
        }
    }
}

impl<'a> Request<'a> {
    /// Reads a message of `total` bytes. `bytes` are its first ones: all of them, or at least
    /// [`WRITE_HEAD`] of a WRITE.
    pub fn decode(bytes: &'a [u8], total: usize) -> Result<Request<'a>, WireError> {
        let header = Header::decode(bytes)?;
        if usize::try_from(header.len) != Ok(total) || bytes.len() > total {
            return Err(WireError::bad("len", 0));
        }
        let body = bytes.get(REQUEST_HEAD..).unwrap_or(&[]);
        let operation = Operation::decode(header.opcode, body)?;
        match operation {
            Operation::Write { size, .. } => {
                let data = total.checked_sub(WRITE_HEAD);
                if data.is_none() || data != usize::try_from(size).ok() {
                    return Err(WireError::bad("size", 56));
                }
            }
            _ if bytes.len() < total => return Err(WireError::short("body", 0)),
            _ => {}
        }
        Ok(Request { header, operation })
    }
}

impl<'a> Operation<'a> {
    fn decode(code: u32, body: &'a [u8]) -> Result<Operation<'a>, WireError> {
        let mut r = Reader::new(body);
        Ok(match code {
            opcode::INIT => Operation::Init {
                major: u32_of(&mut r, "major")?,
                minor: u32_of(&mut r, "minor")?,
                readahead: u32_of(&mut r, "max_readahead")?,
                flags: u32_of(&mut r, "flags")?,
            },
            opcode::LOOKUP => Operation::Lookup { name: name_of(body)? },
            opcode::FORGET | opcode::BATCH_FORGET => Operation::Forget,
            opcode::GETATTR => Operation::Getattr,
            opcode::SETATTR => Operation::Setattr { valid: u32_of(&mut r, "valid")? },
            opcode::OPEN => Operation::Open { flags: u32_of(&mut r, "flags")? },
            opcode::READ | opcode::READDIR | opcode::WRITE => {
                u64_of(&mut r, "fh")?;
                let (offset, size) = (u64_of(&mut r, "offset")?, u32_of(&mut r, "size")?);
                r.take(20, "flags")?;
                match code {
                    opcode::READ => Operation::Read { offset, size },
                    opcode::WRITE => Operation::Write { offset, size },
                    _ => Operation::Readdir { offset, size },
                }
            }
            opcode::STATFS => Operation::Statfs,
            opcode::RELEASE => Operation::Release,
            opcode::FSYNC => Operation::Fsync,
            opcode::FLUSH => Operation::Flush,
            opcode::OPENDIR => Operation::Opendir,
            opcode::RELEASEDIR => Operation::Releasedir,
            opcode::FSYNCDIR => Operation::Fsyncdir,
            opcode::ACCESS => Operation::Access,
            opcode::INTERRUPT => Operation::Interrupt { unique: u64_of(&mut r, "unique")? },
            opcode::DESTROY => Operation::Destroy,
            opcode::FALLOCATE => {
                u64_of(&mut r, "fh")?;
                Operation::Fallocate {
                    offset: u64_of(&mut r, "offset")?,
                    len: u64_of(&mut r, "length")?,
                    mode: u32_of(&mut r, "mode")?,
                }
            }
            opcode::LSEEK => {
                u64_of(&mut r, "fh")?;
                let (offset, whence) = (u64_of(&mut r, "offset")?, u32_of(&mut r, "whence")?);
                Operation::Lseek { offset, whence }
            }
            _ => Operation::Other,
        })
    }
}

/// One name and its zero.
fn name_of(body: &[u8]) -> Result<&[u8], WireError> {
    let (last, name) = body.split_last().ok_or(WireError::short("name", 40))?;
    if *last != 0 || name.contains(&0) || name.is_empty() || name.len() > NAME_MAX {
        return Err(WireError::bad("name", 40));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(opcode: u32, body: &[u8], more: u32) -> Vec<u8> {
        let len = u32::try_from(REQUEST_HEAD + body.len()).unwrap() + more;
        let mut out = Vec::new();
        Header { len, opcode, unique: 7, node: 2, uid: 1, gid: 3, pid: 4 }.encode(&mut out);
        out.extend(body);
        out
    }

    fn io(offset: u64, size: u32) -> Vec<u8> {
        let mut body = 9u64.to_ne_bytes().to_vec();
        body.extend(offset.to_ne_bytes());
        body.extend(size.to_ne_bytes());
        body.extend([0; 20]);
        body
    }

    /// R1.
    #[test]
    fn requests_are_decoded_and_their_lengths_checked() {
        let read = message(opcode::READ, &io(1 << 40, 4096), 0);
        let got = Request::decode(&read, read.len()).unwrap();
        assert_eq!(got.operation, Operation::Read { offset: 1 << 40, size: 4096 });
        assert_eq!((got.header.unique, got.header.node, got.header.pid), (7, 2, 4));
        assert!(Request::decode(&read, read.len() + 1).is_err());
        assert!(Request::decode(&read[..60], read.len()).is_err());

        let write = message(opcode::WRITE, &io(512, 1024), 1024);
        let got = Request::decode(&write, WRITE_HEAD + 1024).unwrap();
        assert_eq!(got.operation, Operation::Write { offset: 512, size: 1024 });
        let lies = message(opcode::WRITE, &io(512, 4096), 1024);
        assert!(Request::decode(&lies, WRITE_HEAD + 1024).is_err());

        let unknown = message(4096, &[1, 2, 3], 0);
        assert_eq!(Request::decode(&unknown, 43).unwrap().operation, Operation::Other);
    }

    #[test]
    fn lookup_has_exactly_one_name() {
        let name = |body: &[u8]| {
            let message = message(opcode::LOOKUP, body, 0);
            Request::decode(&message, message.len()).map(|r| match r.operation {
                Operation::Lookup { name } => name.to_vec(),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(name(b"disk\0").unwrap(), b"disk");
        for bad in [&b""[..], b"\0", b"disk", b"a\0b\0", &[b'x'; 300]] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }
}
