//! Parameter lists of third-party copy, byte by byte as the standards lay them out: nothing here
//! uses the codec under test.

/// An identification descriptor with a unit's NAA name.
pub fn cscd(naa: &[u8; 16]) -> Vec<u8> {
    let mut out = vec![0xe4, 0, 0, 0, 0x01, 0x03, 0, 16];
    out.extend(naa);
    out.extend([0; 8]);
    out
}

/// The NAA name of a unit of the world, from its VPD page 83h.
pub fn naa_of(page: &[u8]) -> [u8; 16] {
    assert_eq!(page[4..8], [1, 3, 0, 16], "the first designator is NAA");
    page[8..24].try_into().unwrap()
}

/// Block to block; `kind` 02h or 0Dh.
pub fn blocks(kind: u8, flags: u8, ids: (u16, u16), n: u16, from: u64, to: u64) -> Vec<u8> {
    let mut out = vec![kind, flags, 0, 0x18];
    out.extend(ids.0.to_be_bytes());
    out.extend(ids.1.to_be_bytes());
    out.extend([0, 0]);
    out.extend(n.to_be_bytes());
    out.extend(from.to_be_bytes());
    out.extend(to.to_be_bytes());
    out
}

/// Block to block with offsets.
pub fn bytes(ids: (u16, u16), n: u32, from: (u64, u16), to: (u64, u16)) -> Vec<u8> {
    let mut out = vec![0x0a, 0, 0, 0x1c];
    out.extend(ids.0.to_be_bytes());
    out.extend(ids.1.to_be_bytes());
    out.extend(n.to_be_bytes());
    out.extend(from.0.to_be_bytes());
    out.extend(to.0.to_be_bytes());
    out.extend(from.1.to_be_bytes());
    out.extend(to.1.to_be_bytes());
    out
}

/// LID1: identifier, LIST ID USAGE and priority, descriptors.
pub fn lid1(id: u8, flags: u8, cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let mut out = vec![id, flags];
    out.extend((cscds.len() as u16).to_be_bytes());
    out.extend([0; 4]);
    out.extend((segments.len() as u32).to_be_bytes());
    out.extend([0; 4]);
    [out, cscds, segments].concat()
}

/// LID4, maybe with IMMED.
pub fn lid4(id: u32, immed: bool, cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let mut out = vec![1, 0, 0, 0x20];
    out.extend([0; 11]);
    out.extend([u8::from(immed), 0xff, 0, 0, 0]);
    out.extend(id.to_be_bytes());
    out.extend([0; 18]);
    out.extend((cscds.len() as u16).to_be_bytes());
    out.extend((segments.len() as u16).to_be_bytes());
    out.extend([0; 2]);
    [out, cscds, segments].concat()
}

/// A CDB of 83h.
pub fn out_cdb(action: u8, id: u32, len: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x83, action);
    cdb[6..10].copy_from_slice(&if action < 2 { 0 } else { id }.to_be_bytes());
    cdb[10..14].copy_from_slice(&(len as u32).to_be_bytes());
    cdb
}

/// COPY OPERATION ABORT.
pub fn abort_cdb(id: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x83, 0x1c);
    cdb[2..6].copy_from_slice(&id.to_be_bytes());
    cdb
}

/// A CDB of 84h with an allocation length of 4096.
pub fn in_cdb(action: u8, id: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x84, action);
    if action < 5 {
        cdb[2] = id as u8;
    } else {
        cdb[2..6].copy_from_slice(&id.to_be_bytes());
    }
    cdb[10..14].copy_from_slice(&4096u32.to_be_bytes());
    cdb
}

/// Range descriptors with their length before them.
fn ranges(ranges: &[(u64, u32)]) -> Vec<u8> {
    let mut out = ((ranges.len() * 16) as u16).to_be_bytes().to_vec();
    for (lba, n) in ranges {
        out.extend(lba.to_be_bytes());
        out.extend(n.to_be_bytes());
        out.extend([0; 4]);
    }
    out
}

/// POPULATE TOKEN without a ROD type.
pub fn populate(immed: bool, timeout: u32, runs: &[(u64, u32)]) -> Vec<u8> {
    let mut out = vec![0, 0, u8::from(immed), 0];
    out.extend(timeout.to_be_bytes());
    out.extend([0; 6]);
    out.extend(ranges(runs));
    let len = (out.len() - 2) as u16;
    out[..2].copy_from_slice(&len.to_be_bytes());
    out
}

/// WRITE USING TOKEN; `flags`: 1 IMMED, 2 DEL_TKN.
pub fn write(flags: u8, offset: u64, token: &[u8], runs: &[(u64, u32)]) -> Vec<u8> {
    let mut out = vec![0, 0, flags, 0, 0, 0, 0, 0];
    out.extend(offset.to_be_bytes());
    out.extend(token);
    out.extend([0; 6]);
    out.extend(ranges(runs));
    let len = (out.len() - 2) as u16;
    out[..2].copy_from_slice(&len.to_be_bytes());
    out
}
