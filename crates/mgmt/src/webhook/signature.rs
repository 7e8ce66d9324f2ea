//! Signatures of webhooks, as Standard Webhooks defines them: HMAC-SHA256 over the id of the event,
//! the time of the attempt and the body.

use sha2::{Digest, Sha256};

/// Block of SHA-256, in bytes.
const BLOCK_BYTES: usize = 64;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The field `webhook-signature` of a request.
pub(super) fn signature(secret: &[u8], id: &str, timestamp: u64, body: &[u8]) -> String {
    let head = format!("{id}.{timestamp}.");
    format!("v1,{}", base64(&hmac_sha256(secret, &[head.as_bytes(), body])))
}

/// HMAC (RFC 2104) of the concatenated parts.
fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let hashed = Sha256::digest(key);
    let key: &[u8] = if key.len() > BLOCK_BYTES { hashed.as_ref() } else { key };
    let mut block = [0_u8; BLOCK_BYTES];
    block.iter_mut().zip(key).for_each(|(byte, &of_key)| *byte = of_key);
    let mut inner = Sha256::new();
    inner.update(block.map(|byte| byte ^ 0x36));
    parts.iter().for_each(|part| inner.update(part));
    let mut outer = Sha256::new();
    outer.update(block.map(|byte| byte ^ 0x5c));
    outer.update(inner.finalize());
    outer.finalize().to_vec()
}

/// Base64 with padding (RFC 4648 4).
fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for i in 0..4 {
            let digit = usize::try_from((bits >> (18 - 6 * i)) & 63).unwrap_or(0);
            let is_data = i <= group.len();
            out.push(if is_data { char::from(BASE64[digit]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_matches_rfc_4231() {
        let hex = |key: &[u8], parts: &[&[u8]]| {
            let all = hmac_sha256(key, parts);
            all.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(
            hex(b"Jefe", &[b"what do ya want ", b"for nothing?"]),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(&[0xaa; 131], &[b"Test Using Larger Than Block-Size Key - Hash Key First"]),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn base64_matches_rfc_4648() {
        for (text, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
