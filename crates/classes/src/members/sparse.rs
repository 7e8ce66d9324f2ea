//! Zeroes that a pass need not write because the member already has them. An image with holes keeps
//! them through a rebuild, and takes no more space than its data.

use std::rc::Rc;

use bio::{Attr, Segs};
use geom::{Core, Edge, ProviderId, Topology};

/// Compared at once, bytes.
const PIECE: usize = 4096;

/// Whether zeroes on a provider stay zeroes. If blocks can be deleted and are not known to read as
/// zeroes then, they may read as something else later.
pub(crate) fn keeps_zeroes(t: &Topology, provider: ProviderId) -> bool {
    let is = |name| t.attr(provider, name) == Some(Attr::Int(1));
    !is("GEOM::candelete") || is("GEOM::deletereadszero")
}

/// Whether there is nothing but zeroes.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    const ZEROES: [u8; PIECE] = [0; PIECE];
    bytes.chunks(PIECE).all(|piece| ZEROES.get(..piece.len()) == Some(piece))
}

/// The same of a request's data.
pub(crate) fn are_zero(data: &Segs) -> bool {
    data.iter().all(|seg| seg.with(is_zero))
}

/// Whether a member reads as zeroes there; one that cannot be read does not.
pub(crate) async fn has_zeroes(core: &Rc<Core>, edge: Edge, at: u64, len: usize) -> bool {
    core.read(edge, at, len).await.is_ok_and(|bytes| bytes.len() == len && is_zero(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonzero_byte_is_found_at_any_position() {
        for len in [0, 1, 511, PIECE, PIECE + 1, 3 * PIECE] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes), "{len}");
            for at in [0, len / 2, len.saturating_sub(1)] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = 1;
                    assert!(!is_zero(&bytes), "{at} of {len}");
                    bytes[at] = 0;
                }
            }
        }
    }
}
