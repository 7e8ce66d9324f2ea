//! Recovery of a volume from its WORM.

use super::fence::{self, FenceEntry};
use super::join;
use super::open::{Options, flush, format, layout, read};
use super::point::{Dump, Point};
use super::state::{BATCH, WORM_FIRST};
use super::worm::{self, Label};
use crate::fault::{Addr, Fault};

/// A recovered volume counts its changes from so much higher: numbers that the server before it
/// gave since the dump are never given again.
const RECOVERED: u64 = 1 << 31;

struct FoundMember {
    member: usize,
    label: Label,
    fence_entries: Vec<(u64, FenceEntry)>,
    free: Option<u64>,
    /// The newest dump of the highest epoch, and its superblock's checksum.
    last: Option<(Dump, u32)>,
    epoch: u32,
}

/// Every device of the WORM that answers.
async fn inspect_all(o: &Options) -> Result<Vec<FoundMember>, Fault> {
    o.check()?;
    let mut found = Vec::new();
    let mut why = Fault::Invalid("a file system without a WORM cannot be recovered");
    for leg in 0..o.members.len() {
        match inspect_member(o, leg).await {
            Ok(f) => found.push(f),
            Err(fault) => why = fault,
        }
    }
    if found.is_empty() { Err(why) } else { Ok(found) }
}

/// The device that has most, its newest dump and the checksum of that one's superblock.
fn most_complete(found: &[FoundMember]) -> Result<(&FoundMember, Dump, u32), Fault> {
    let best = found.iter().max_by_key(|f| (f.epoch, f.last.map_or(0, |(d, _)| d.number)));
    match best.and_then(|f| f.last.map(|(last, chain)| (f, last, chain))) {
        Some(all) => Ok(all),
        None => Err(Fault::Corrupt("the WORM holds no complete dump".into())),
    }
}

/// The dumps on the WORM, oldest first. Nothing is changed, and no server is fenced. A chain that
/// cannot be read to its beginning ends where it cannot.
pub async fn dumps_on_worm(o: &Options) -> Result<Vec<Dump>, Fault> {
    let found = inspect_all(o).await?;
    let (best, last, _) = most_complete(&found)?;
    let mut all = vec![last];
    let mut at = last.sb;
    while let Ok(Some((_, earlier, _))) = superblock(o, best.member, &best.label, at).await {
        all.extend(earlier);
        match all.last() {
            Some(first) if first.number > 1 && first.sb < at => at = first.sb,
            _ => break,
        }
    }
    all.reverse();
    Ok(all)
}

/// Recovers a volume from a dump of the WORM, the newest if none is named: the cache device is
/// formatted. This is for a lost cache device, and for a standby that takes over; the previous
/// owner of the WORM is fenced. Dumps after the named one are not changed: the next one is written
/// behind them.
pub async fn recover(o: &Options, from: Option<&Dump>) -> Result<Dump, Fault> {
    let found = inspect_all(o).await?;
    let (best, last, chain) = most_complete(&found)?;
    let from = *from.unwrap_or(&last);
    let (volume, block, epoch) = (best.label.volume, best.label.block, best.epoch + 1);
    let name = o.members[best.member].name().to_owned();
    // A cache device that knows this WORM keeps its seat.
    let known = layout(o).await.ok().filter(|l| l.volume == volume);
    let o = &Options { owner: known.map_or(o.owner, |l| l.owner), ..o.clone() };
    if let Some(other) = found.iter().find(|f| f.label.volume != volume) {
        let text = format!("{} and {name} are of different WORMs", o.members[other.member].name());
        return Err(Fault::Corrupt(text));
    }
    // The seat is written first: grants are read when the previous owner can know that it has lost
    // the WORM (N2).
    let mut start = last.next.max(WORM_FIRST);
    let seat = |start, grant| FenceEntry {
        owner: o.owner,
        name: o.name.clone(),
        epoch,
        left: false,
        grant,
        start,
        latest: last.sb,
    };
    for f in &found {
        claim(o, f, volume, block, &seat(u64::MAX / 4, 0)).await?;
    }
    let alone = |s: &FenceEntry| s.owner == o.owner || s.left;
    if !found.iter().flat_map(|f| &f.fence_entries).all(|(_, s)| s.epoch < best.epoch || alone(s)) {
        o.reactor.sleep(fence::WAIT_NS).await;
    }
    for f in &found {
        let (seats, _) = read_fence_entries(o, f.member, volume, block as usize).await?;
        fence::check_entries(&seats, &o.owner, epoch)?;
        start = seats.iter().map(|(_, s)| s.grant).fold(start, Addr::max);
    }
    for f in &found {
        claim(o, f, volume, block, &seat(start, start)).await?;
    }
    let point = Point {
        root: from.root,
        next: start + 1,
        frozen: start + 1,
        sb: start,
        ino: last.ino.max(u64::from(epoch) << 40) + BATCH,
        change: last.change + RECOVERED,
        epoch,
        last,
        chain,
        members: vec![WORM_FIRST; o.members.len()],
    };
    let mut point = point;
    for f in &found {
        // The data that was read may have been in a cache of the device only.
        flush(&*o.members[f.member]).await?;
        point.members[f.member] = f.last.map_or(WORM_FIRST, |(d, _)| d.next);
    }
    format(o, volume, block, &point).await?;
    Ok(from)
}

async fn read_fence_entries(
    o: &Options,
    leg: usize,
    volume: u64,
    block: usize,
) -> Result<(Vec<(u64, FenceEntry)>, Option<u64>), Fault> {
    fence::read_entries(&*o.members[leg], volume, block, async || o.memory(block).await).await
}

async fn claim(
    o: &Options,
    f: &FoundMember,
    volume: u64,
    block: u32,
    seat: &FenceEntry,
) -> Result<(), Fault> {
    let mine = f.fence_entries.iter().find(|(_, s)| s.owner == o.owner).map(|(i, _)| *i);
    let place = mine.or(f.free).ok_or(Fault::NoSpace("all seats of the fence are taken"))?;
    // A grant of an earlier epoch of this server still covers its writes of that epoch.
    let own = f.fence_entries.iter().filter(|(i, _)| *i == place).map(|(_, s)| s.grant).max();
    let seat = FenceEntry { grant: seat.grant.max(own.unwrap_or(0)), ..seat.clone() };
    let memory = o.memory(block as usize).await?;
    fence::write_entry(&*o.members[f.member], volume, place, &seat, memory, block as usize).await
}

/// The state of a leg.
async fn inspect_member(o: &Options, leg: usize) -> Result<FoundMember, Fault> {
    let medium = &*o.members[leg];
    let head = read(o, medium, 0, super::BLOCKS[0] as usize).await?;
    let label = Label::decode(&head).map_err(|why| {
        Fault::Foreign(format!("{} is not a device of a WORM: {why}", medium.name()))
    })?;
    let block = label.block as usize;
    let (seats, free) = read_fence_entries(o, leg, label.volume, block).await?;
    let owner = seats.iter().map(|(_, s)| s).max_by_key(|s| s.epoch);
    let (epoch, latest, start) = owner.map_or((0, 0, 0), |s| (s.epoch, s.latest, s.start));
    let superblock = async |addr: Addr| -> Result<Option<(Dump, u32)>, Fault> {
        Ok(superblock(o, leg, &label, addr).await?.map(|(d, _, crc)| (d, crc)))
    };
    // The superblock that the seat names, then along the chain as far as it is whole.
    let mut last = superblock(latest).await?;
    loop {
        let at = match &last {
            Some((d, _)) if d.epoch == epoch => d.next,
            _ => start,
        };
        let next = superblock(at).await?;
        let follows = next.filter(|(d, _)| match &last {
            Some((l, crc)) => d.number == l.number + 1 && d.chain == *crc,
            None => d.number == 1,
        });
        if follows.is_none() {
            break;
        }
        last = follows;
    }
    Ok(FoundMember { member: leg, label, fence_entries: seats, free, last, epoch })
}

/// A superblock of a leg, as [`worm::superblock`] has it; none: there is no sound one.
async fn superblock(
    o: &Options,
    leg: usize,
    label: &Label,
    addr: Addr,
) -> Result<Option<(Dump, Vec<Dump>, u32)>, Fault> {
    let (medium, block) = (&*o.members[leg], label.block as usize);
    if addr < WORM_FIRST || (addr + 1).saturating_mul(block as u64) > medium.size() {
        return Ok(None);
    }
    let seg = join::read_block(medium, addr, o.memory(block).await?).await?;
    Ok(seg.with(|b| worm::superblock(b, label.volume, addr)).ok())
}
