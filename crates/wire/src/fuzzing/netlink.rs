//! Target for generic netlink.

use crate::netlink::{
    HEAD, KernelMessage, MESSAGE_MAX, Message, attribute, attribute_u16, attribute_u32, decode,
};

/// Consecutive messages: each is inside the received bytes, and so are its attributes. A decoded
/// attribute that is encoded again decodes to the same value.
pub fn fuzz_netlink(data: &[u8]) {
    let mut rest = data;
    while let Ok((sequence, message, after)) = decode(rest) {
        assert!(after.len() + 16 <= rest.len());
        rest = after;
        let KernelMessage::Message { family, command, attributes } = message else { continue };
        assert!(attributes.len() + HEAD <= MESSAGE_MAX);
        for kind in 0..12 {
            let Some(value) = attribute(attributes, kind) else { continue };
            let mut again = Message::new(family, command, sequence);
            again.attribute(kind, value);
            let bytes = again.finish();
            let Ok((_, KernelMessage::Message { attributes, .. }, [])) = decode(&bytes) else {
                panic!("what was written is not read")
            };
            assert_eq!(attribute(attributes, kind), Some(value));
            assert_eq!(attribute_u16(attributes, kind).is_some(), value.len() >= 2);
            assert_eq!(attribute_u32(attributes, kind).is_some(), value.len() >= 4);
        }
    }
}
