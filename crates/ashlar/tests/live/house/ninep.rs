//! A client of 9P2000 made of bytes, which attaches and does nothing more.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Attaches as a user; the connection, which it stays attached by, or why it may not.
pub fn attach(at: SocketAddr, user: &str) -> io::Result<Result<TcpStream, String>> {
    let mut line = TcpStream::connect(at)?;
    let mut asks = |kind: u8, tag: u16, body: &[u8]| -> io::Result<Vec<u8>> {
        let mut message = (body.len() as u32 + 7).to_le_bytes().to_vec();
        message.push(kind);
        message.extend(tag.to_le_bytes());
        message.extend(body);
        line.write_all(&message)?;
        let mut len = [0; 4];
        line.read_exact(&mut len)?;
        let mut answer = vec![0; u32::from_le_bytes(len) as usize - 4];
        line.read_exact(&mut answer)?;
        Ok(answer)
    };
    let text = |s: &str| [&(s.len() as u16).to_le_bytes()[..], s.as_bytes()].concat();
    asks(100, 0xffff, &[&8192_u32.to_le_bytes()[..], &text("9P2000")].concat())?;
    let fids = [1_u32.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
    let answer = asks(104, 1, &[&fids[..], &text(user), &text("")].concat())?;
    // Kind, tag, and of an error its words behind their length.
    let refused = String::from_utf8_lossy(answer.get(5..).unwrap_or_default()).into_owned();
    Ok(if answer.first() == Some(&105) { Ok(line) } else { Err(refused) })
}
