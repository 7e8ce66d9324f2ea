//! The UNMAP parameter list (SBC-3 section 5.30.2).

use super::codes::asc;
use super::sense::Sense;

/// One run of blocks to unmap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnmapDescriptor {
    /// First logical block.
    pub lba: u64,
    /// Number of blocks; 0 unmaps nothing.
    pub blocks: u32,
}

/// A checked parameter list; the descriptors stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmapList<'a> {
    descriptors: &'a [[u8; 16]],
}

impl<'a> UnmapList<'a> {
    /// Checks the lengths of a list. An empty list unmaps nothing. A header that is cut, or lengths
    /// that exceed `data` or contradict each other, are errors; bytes after the last whole
    /// descriptor are ignored.
    pub fn parse(data: &'a [u8]) -> Result<UnmapList<'a>, Sense> {
        if data.is_empty() {
            return Ok(UnmapList { descriptors: &[] });
        }
        let cut = Sense::new(asc::PARAMETER_LIST_LEN);
        let (head, rest) = data.split_first_chunk::<8>().ok_or(cut)?;
        let data_len = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let list_len = usize::from(u16::from_be_bytes([head[2], head[3]]));
        // UNMAP DATA LENGTH counts the bytes after it: six bytes of header and the descriptors.
        if list_len > 0 && data_len < list_len + 6 {
            return Err(Sense::list_field(0, None));
        }
        let used = rest.get(..list_len).ok_or(cut)?;
        let (descriptors, _) = used.as_chunks::<16>();
        Ok(UnmapList { descriptors })
    }

    /// Number of descriptors.
    pub fn len(&self) -> usize {
        self.descriptors.len()
    }

    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = UnmapDescriptor> + 'a {
        self.descriptors.iter().map(|bytes| UnmapDescriptor {
            lba: u64::from_be_bytes(crate::bytes::get_array::<0, 8, 16>(bytes)),
            blocks: crate::bytes::get32::<8, 16>(bytes),
        })
    }

    /// Writes a list, for initiators. More than 4095 descriptors do not fit and are left out.
    pub fn encode(descriptors: &[UnmapDescriptor]) -> Vec<u8> {
        let used = descriptors.get(..4095).unwrap_or(descriptors);
        let list_len = u16::try_from(used.len() * 16).unwrap_or(0);
        let mut out = Vec::with_capacity(8 + used.len() * 16);
        out.extend((list_len + 6).to_be_bytes());
        out.extend(list_len.to_be_bytes());
        out.extend([0; 4]);
        for one in used {
            out.extend(one.lba.to_be_bytes());
            out.extend(one.blocks.to_be_bytes());
            out.extend([0; 4]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmap_lists_decode_as_encoded_or_are_refused() {
        let runs = [
            UnmapDescriptor { lba: 0x1_0000_0002, blocks: 3 },
            UnmapDescriptor { lba: 7, blocks: 0 },
        ];
        let bytes = UnmapList::encode(&runs);
        assert_eq!(bytes[..8], [0, 38, 0, 32, 0, 0, 0, 0]);
        assert_eq!(UnmapList::parse(&bytes).unwrap().iter().collect::<Vec<_>>(), runs);
        assert!(UnmapList::parse(&[]).unwrap().is_empty());
        assert!(UnmapList::parse(&[0, 6, 0, 0, 0, 0, 0, 0]).unwrap().is_empty());
        for cut in 1..bytes.len() {
            let error = UnmapList::parse(&bytes[..cut]).unwrap_err();
            assert_eq!(error.code, asc::PARAMETER_LIST_LEN, "cut at {cut}");
        }
        let mut lie = bytes.clone();
        lie[1] = 5;
        assert_eq!(UnmapList::parse(&lie).unwrap_err(), Sense::list_field(0, None));
        // A partial descriptor is ignored.
        let mut partial = bytes.clone();
        (partial[1], partial[3]) = (37, 31);
        assert_eq!(UnmapList::parse(&partial).unwrap().len(), 1);
        assert_eq!(UnmapList::encode(&[runs[0]; 5000]).len(), 8 + 4095 * 16);
    }
}
