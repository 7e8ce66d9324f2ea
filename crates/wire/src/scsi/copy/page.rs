//! VPD page 8Fh, third-party copy (SPC-4 7.8.17, SBC-3 6.6.6).

use super::token::RodType;
use super::{COPY_IN_ACTIONS, COPY_OUT_ACTIONS, CopyLimits, DESCRIPTOR_TYPES};

/// The page without its header: descriptors by growing type.
pub fn third_party_page(limits: &CopyLimits) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 0x0000, &token_limits(limits));
    put(&mut out, 0x0001, &commands());
    put(&mut out, 0x0004, &parameters(limits));
    put(&mut out, 0x0008, &counted8(&DESCRIPTOR_TYPES));
    // Beside the places in the list: this unit.
    put(&mut out, 0x000c, &[0, 2, 0xff, 0xff]);
    put(&mut out, 0x0106, &token_features(limits));
    put(&mut out, 0x0108, &token_types());
    put(&mut out, 0x8001, &general(limits));
    put(&mut out, 0xc001, &held(limits));
    out
}

/// A descriptor; its length is a multiple of four.
fn put(out: &mut Vec<u8>, kind: u16, body: &[u8]) {
    let len = body.len().next_multiple_of(4);
    out.extend(kind.to_be_bytes());
    out.extend(u16::try_from(len).unwrap_or(0).to_be_bytes());
    let end = out.len() + len;
    out.extend(body);
    out.resize(end, 0);
}

fn counted8(list: &[u8]) -> Vec<u8> {
    let mut out = vec![u8::try_from(list.len()).unwrap_or(0)];
    out.extend(list);
    out
}

/// Block device ROD token limits.
fn token_limits(limits: &CopyLimits) -> Vec<u8> {
    let mut out = vec![0; 6];
    out.extend(limits.ranges.to_be_bytes());
    out.extend(limits.timeout_max_s.to_be_bytes());
    out.extend(limits.timeout_default_s.to_be_bytes());
    // MAXIMUM TOKEN TRANSFER SIZE and OPTIMAL TRANSFER COUNT are blocks, of a size that this page
    // does not know: 0 means not reported. The limit in bytes follows in 0106h.
    out.extend([0; 16]);
    out
}

fn commands() -> Vec<u8> {
    let mut list = vec![0x83];
    list.extend(counted8(&COPY_OUT_ACTIONS));
    list.push(0x84);
    list.extend(counted8(&COPY_IN_ACTIONS));
    counted8(&list)
}

fn parameters(limits: &CopyLimits) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(limits.cscds.to_be_bytes());
    out.extend(limits.segments.to_be_bytes());
    out.extend(limits.descriptors_len.to_be_bytes());
    out.extend(limits.inline_len.to_be_bytes());
    out.extend([0; 12]);
    out
}

fn token_features(limits: &CopyLimits) -> Vec<u8> {
    // No remote tokens.
    let mut out = vec![0; 12];
    // Least lifetime: none is promised, a write ends it. Longest: without end while it is used.
    out.extend([0; 4]);
    out.extend(u32::MAX.to_be_bytes());
    out.extend(limits.timeout_max_s.to_be_bytes());
    out.extend([0; 18]);
    out.extend([0, 48]);
    // Block devices: format 0, type 0.
    out.extend([0, 0, 0, 44, 0, 0, 0, 0]);
    out.extend(limits.token_bytes.to_be_bytes());
    out.extend(u64::from(limits.chunk_bytes).to_be_bytes());
    // Best bytes a segment, to and from a token: without limit, and a chunk.
    out.extend(u64::MAX.to_be_bytes());
    out.extend(u64::from(limits.chunk_bytes).to_be_bytes());
    out.extend([0; 8]);
    out
}

fn token_types() -> Vec<u8> {
    let mut out = vec![0, 0, 0, 128];
    // TOKEN_IN means that it can be presented, TOKEN_OUT means that it can be made.
    for (kind, flags) in [(RodType::ChangeVulnerable, 0x03), (RodType::Zero, 0x02)] {
        let end = out.len() + 64;
        out.extend(kind.code().to_be_bytes());
        out.push(flags);
        out.resize(end, 0);
    }
    out
}

fn general(limits: &CopyLimits) -> Vec<u8> {
    let mut out = u32::from(limits.concurrent).to_be_bytes().to_vec();
    out.extend(u32::from(limits.identified).to_be_bytes());
    out.resize(32, 0);
    out
}

fn held(limits: &CopyLimits) -> Vec<u8> {
    let mut out = limits.held_len.to_be_bytes().to_vec();
    out.resize(28, 0);
    out
}

#[cfg(test)]
mod tests {
    use super::super::TEST_LIMITS;
    use super::*;

    #[test]
    fn third_party_copy_descriptors_are_complete_and_ordered() {
        let page = third_party_page(&TEST_LIMITS);
        let mut rest = page.as_slice();
        let mut seen = Vec::new();
        while let [a, b, c, d, body @ ..] = rest {
            let len = usize::from(u16::from_be_bytes([*c, *d]));
            assert_eq!(len % 4, 0);
            seen.push((u16::from_be_bytes([*a, *b]), len));
            rest = &body[len..];
        }
        let want = [
            (0x0000, 32),
            (0x0001, 20),
            (0x0004, 28),
            (0x0008, 8),
            (0x000c, 4),
            (0x0106, 92),
            (0x0108, 132),
            (0x8001, 32),
            (0xc001, 28),
        ];
        assert_eq!(seen, want);
    }

    #[test]
    fn supported_commands_match_known_bytes() {
        let want = [16, 0x83, 5, 0, 1, 0x10, 0x11, 0x1c, 0x84, 7, 0, 1, 3, 4, 5, 7, 8];
        assert_eq!(commands(), want);
    }
}
