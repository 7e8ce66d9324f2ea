//! Target for 9P2000.

use crate::ninep::{HEAD, R, Stat, T, WRITE_HEAD, head};

/// A message, as a request and as a reply: a decoded message encodes to the same bytes.
pub fn fuzz_ninep(data: &[u8]) {
    let Some(first) = data.first_chunk::<HEAD>() else { return };
    let Ok((size, _, tag)) = head(first, 1 << 20) else { return };
    let Some(message) = data.get(..size as usize) else { return };
    if let Ok(t) = T::decode(message, size) {
        let mut again = Vec::new();
        t.encode(tag, &mut again);
        let wrote = if matches!(t, T::Write { .. }) { WRITE_HEAD } else { message.len() };
        assert_eq!(Some(&again[..]), message.get(..wrote));
    }
    if let Ok(r) = R::decode(message) {
        let mut again = Vec::new();
        r.encode(tag, &mut again);
        assert_eq!(again, message);
    }
    let mut rest = message;
    while let Ok((stat, n)) = Stat::decode(rest) {
        let mut again = Vec::new();
        stat.encode(&mut again);
        assert_eq!(again, rest[..n]);
        rest = &rest[n..];
    }
}
