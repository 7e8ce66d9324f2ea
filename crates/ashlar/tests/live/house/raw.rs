//! An initiator made of bytes, for what no honest one does. Layouts: RFC 7143 sections 11.2 to
//! 11.13.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A session in full feature phase, without digests.
pub struct Raw {
    /// The connection.
    pub stream: TcpStream,
    /// Which unit [`Raw::command`] is about; 0 at first.
    pub lun: u8,
    command: u32,
}

/// A header of 48 bytes with the length of a data segment, and the segment padded to words.
fn pdu(mut header: [u8; 48], data: &[u8]) -> Vec<u8> {
    header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    let mut all = header.to_vec();
    all.extend_from_slice(data);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

/// A login request that goes from the operational stage to full feature phase.
pub fn login_request(initiator: &str, target: &str) -> Vec<u8> {
    let keys = format!(
        "InitiatorName={initiator}\0TargetName={target}\0SessionType=Normal\0\
         HeaderDigest=None\0DataDigest=None\0MaxRecvDataSegmentLength=262144\0\
         DefaultTime2Retain=0\0"
    );
    let mut header = [0; 48];
    header[0] = 0x43;
    header[1] = 0x87;
    header[8] = 0x80;
    header[9..12].copy_from_slice(&[0x12, 0x34, 0x56]);
    header[19] = 1;
    header[27] = 1;
    pdu(header, keys.as_bytes())
}

impl Raw {
    /// Connects and logs in.
    pub fn login(portal: SocketAddr, initiator: &str, target: &str) -> io::Result<Raw> {
        let mut stream = TcpStream::connect_timeout(&portal, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut request = login_request(initiator, target);
        loop {
            stream.write_all(&request)?;
            let mut header = [0; 48];
            stream.read_exact(&mut header)?;
            let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
            let mut data = vec![0; length.next_multiple_of(4)];
            stream.read_exact(&mut data)?;
            if header[0] & 0x3f != 0x23 || header[36] != 0 {
                let text = format!("no login: {header:02x?} {}", String::from_utf8_lossy(&data));
                return Err(io::Error::other(text));
            }
            if header[1] & 0x83 == 0x83 {
                break;
            }
            // It has keys of its own to say before it agrees to go on.
            request.truncate(48);
            request[5..8].fill(0);
            let next = u32::from_be_bytes([header[24], header[25], header[26], header[27]]) + 1;
            request[28..32].copy_from_slice(&next.to_be_bytes());
        }
        Ok(Raw { stream, lun: 0, command: 1 })
    }

    /// Asks for blocks of LUN 0 and does not wait for them.
    pub fn ask(&mut self, block: u32, blocks: u16) -> io::Result<()> {
        let mut header = [0; 48];
        header[0] = 0x01;
        header[1] = 0xc1;
        header[16..20].copy_from_slice(&self.command.to_be_bytes());
        header[20..24].copy_from_slice(&(u32::from(blocks) * 512).to_be_bytes());
        header[24..28].copy_from_slice(&self.command.to_be_bytes());
        header[28..32].copy_from_slice(&2u32.to_be_bytes());
        header[32] = 0x28;
        header[34..38].copy_from_slice(&block.to_be_bytes());
        header[39..41].copy_from_slice(&blocks.to_be_bytes());
        self.command += 1;
        self.stream.write_all(&pdu(header, &[]))
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// SCSI status.
    pub status: u8,
    /// Data for the initiator.
    pub data: Vec<u8>,
    /// Sense data; empty without.
    pub sense: Vec<u8>,
}

impl Raw {
    /// A command that must succeed; the news before it is heard. Its data.
    #[track_caller]
    pub fn must(&mut self, cdb: &[u8], bytes: u32) -> Vec<u8> {
        for _ in 0..16 {
            let ended = self.command(cdb, bytes, &[]).unwrap();
            match ended.status {
                0 => return ended.data,
                2 if ended.sense.get(2).is_some_and(|key| key & 0xf == 6) => {}
                other => panic!("status {other:02x}, sense {:02x?}", ended.sense),
            }
        }
        panic!("unit attentions without end");
    }

    /// A command to a unit with at most 8 KiB of data either way; waits for its end.
    pub fn command(&mut self, cdb: &[u8], read: u32, data: &[u8]) -> io::Result<Ended> {
        let mut header = [0; 48];
        header[0] = 0x01;
        header[1] = 0x81 | u8::from(read > 0) << 6 | u8::from(!data.is_empty()) << 5;
        header[9] = self.lun;
        header[16..20].copy_from_slice(&self.command.to_be_bytes());
        header[20..24].copy_from_slice(&read.max(data.len() as u32).to_be_bytes());
        header[24..28].copy_from_slice(&self.command.to_be_bytes());
        header[28..32].copy_from_slice(&2u32.to_be_bytes());
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.command += 1;
        self.stream.write_all(&pdu(header, data))?;
        let mut got = Vec::new();
        loop {
            let mut header = [0; 48];
            self.stream.read_exact(&mut header)?;
            let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
            let mut segment = vec![0; length.next_multiple_of(4)];
            self.stream.read_exact(&mut segment)?;
            segment.truncate(length);
            match header[0] & 0x3f {
                0x25 => {
                    got.extend(segment);
                    if header[1] & 1 != 0 {
                        return Ok(Ended { status: header[3], data: got, sense: Vec::new() });
                    }
                }
                0x21 => {
                    let sense = segment.split_off(segment.len().min(2));
                    return Ok(Ended { status: header[3], data: got, sense });
                }
                // A NOP-In asks nothing of us here.
                0x20 => {}
                other => return Err(io::Error::other(format!("PDU {other:02x}: {header:02x?}"))),
            }
        }
    }
}
