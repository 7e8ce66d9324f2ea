//! I/O commands as SCSI commands.

use std::rc::Rc;
use std::sync::Arc;

use engine::registry::LunEntry;
use engine::{Device, unmap_limits};
use transport::ReceiveBuffer;
use wire::nvme::codes::{NSID_ALL, io as op};
use wire::nvme::{Command, Extent, Frame, RANGE_LEN, RANGES_MAX, Range, Sgl, Status, unmap_lists};
use wire::scsi::build::{self, Cdb};
use wire::scsi::{Lun, PeripheralType};

use super::close_reason::CloseReason;
use super::queue::Queue;
use super::tasks::{Stage, Task, Work};

/// Most bytes of one transfer. MDTS reports it, or less when the pools are small.
pub const TRANSFER_MAX: u32 = 1 << 20;

/// AD of Dataset Management: the ranges may be deallocated.
const DEALLOCATE: u32 = 1 << 2;

pub(crate) struct ScsiCommand {
    pub lun: [u8; 8],
    pub cdb: Cdb,
    pub expect_in: u32,
    pub expect_out: u32,
}

impl Task {
    pub fn next_scsi_command(&self) -> ScsiCommand {
        let Extent { lba, blocks, fua, .. } = self.extent;
        let list = self.lists.front().map_or(0, Vec::len);
        let list = u16::try_from(list).unwrap_or(u16::MAX);
        let (cdb, expect_in, expect_out) = match self.work {
            Work::Read => (build::read(lba, blocks, fua), self.command.sgl.len, 0),
            Work::Write => (build::write(lba, blocks, fua), 0, self.wanted),
            Work::Compare => (build::verify(lba, blocks, true), 0, self.wanted),
            Work::Verify => (build::verify(lba, blocks, false), 0, 0),
            Work::Zero(unmap) => (build::write_zeroes(lba, blocks, unmap), 0, 0),
            Work::Free => (build::unmap(list), 0, u32::from(list)),
            Work::Flush => (build::flush(), 0, 0),
        };
        ScsiCommand { lun: self.lun, cdb, expect_in, expect_out }
    }
}

/// The LUN field of a namespace, whose number is not zero.
fn lun_of(namespace: u32) -> [u8; 8] {
    Lun::new(namespace - 1).unwrap_or_default().encode()
}

/// The number of a unit's namespace; None for what can be none: no disk, or blocks of odd size.
pub(crate) fn namespace_of(entry: &LunEntry) -> Option<u32> {
    let block = entry.device.block_bytes();
    let disk = entry.device.kind().peripheral() == PeripheralType::Disk;
    let fits = disk && block.is_power_of_two() && block >= 512;
    u32::try_from(entry.lun).ok().and_then(|lun| lun.checked_add(1)).filter(|_| fits)
}

/// A command as the host sent it, before its data has arrived.
struct HostRequest {
    work: Work,
    extent: Extent,
    /// Bytes of data, from or for the host.
    bytes: u32,
    from_host: bool,
}

fn parse_request(command: &Command, device: &Device) -> Result<HostRequest, Status> {
    let extent = Extent::of(command);
    let work = match command.opcode {
        op::READ => Work::Read,
        op::WRITE => Work::Write,
        op::COMPARE => Work::Compare,
        op::VERIFY => Work::Verify,
        op::WRITE_ZEROES => Work::Zero(extent.deallocate && device.spec().can_delete),
        op::DATASET_MANAGEMENT => Work::Free,
        op::FLUSH => Work::Flush,
        _ => return Err(Status::INVALID_OPCODE),
    };
    let from_host = matches!(work, Work::Write | Work::Compare | Work::Free);
    let of_blocks = u64::from(extent.blocks) * u64::from(device.block_bytes());
    let bytes = match work {
        Work::Flush | Work::Verify | Work::Zero(_) => 0,
        Work::Free => {
            let [count, ..] = command.dwords;
            u64::from((count & 0xff) + 1) * RANGE_LEN as u64
        }
        _ => of_blocks,
    };
    let ranged = !matches!(work, Work::Flush | Work::Free);
    if ranged && !extent.fits(device.blocks()) {
        return Err(Status::LBA_OUT_OF_RANGE);
    }
    let most = TRANSFER_MAX.min(device.transfer_max());
    let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes <= most);
    let bytes = bytes.ok_or(Status::INVALID_FIELD)?;
    Ok(HostRequest { work, extent, bytes, from_host })
}

/// Checks SGL and capsule of a command; answers the bytes that the host sends.
fn check_data(command: &Command, request: &HostRequest, in_capsule: usize) -> Result<u32, Status> {
    let sgl = &command.sgl;
    if request.bytes == 0 {
        return if in_capsule == 0 { Ok(0) } else { Err(Status::SGL_LENGTH) };
    }
    // Linux sends space for all ranges there could be.
    let most = RANGES_MAX as u64 * RANGE_LEN as u64;
    let right = match request.work {
        Work::Free => sgl.len >= request.bytes && u64::from(sgl.len) <= most,
        _ => sgl.len == request.bytes,
    };
    if !right {
        return Err(Status::SGL_LENGTH);
    }
    match sgl.kind {
        Sgl::TRANSPORT if in_capsule == 0 => {}
        Sgl::IN_CAPSULE if request.from_host => {
            if sgl.address != 0 {
                return Err(Status::SGL_OFFSET);
            }
            if usize::try_from(sgl.len) != Ok(in_capsule) {
                return Err(Status::SGL_LENGTH);
            }
        }
        _ => return Err(Status::SGL_TYPE),
    }
    Ok(if request.from_host { sgl.len } else { 0 })
}

impl Queue {
    pub async fn io_command(
        self: &Rc<Self>,
        rx: &mut ReceiveBuffer,
        frame: &Frame,
        command: Command,
    ) -> Result<(), CloseReason> {
        if command.opcode == wire::nvme::codes::admin::FABRICS {
            return self.fabrics_command(rx, frame, &command).await;
        }
        let (task, in_capsule) = match self.admit(&command, frame.data_len) {
            Ok(admitted) => admitted,
            Err(status) => {
                self.conn.drop_data(rx, frame).await?;
                self.end_command(command.id, 0, status);
                return Ok(());
            }
        };
        let wanted = task.wanted;
        let tag = self.tasks.borrow_mut().put(task);
        match wanted {
            0 => self.ready(tag),
            _ if in_capsule => {
                if self.capsule_data(rx, frame, tag).await? {
                    self.data_complete(tag);
                }
            }
            _ => self.request_data(tag),
        }
        Ok(())
    }

    /// Checks a command; answers its place, and whether its data is in the capsule.
    fn admit(&self, command: &Command, in_capsule: usize) -> Result<(Task, bool), Status> {
        if self.tasks.borrow().find(command.id).is_some() {
            return Err(Status::ID_CONFLICT);
        }
        if command.fuse() != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let namespace = command.nsid;
        let device = self.unit(namespace).ok_or_else(|| self.absent(namespace))?;
        let request = parse_request(command, &device)?;
        let wanted = check_data(command, &request, in_capsule)?;
        let task = Task {
            stage: if in_capsule > 0 { Stage::CapsuleData } else { Stage::MemoryWait },
            command: *command,
            lun: lun_of(namespace),
            work: request.work,
            extent: request.extent,
            wanted,
            // WRITE SAME knows no FUA.
            then_flush: matches!(request.work, Work::Zero(_)) && request.extent.fua,
            data: self.conn.core.segs.take(),
            ..Task::default()
        };
        Ok((task, in_capsule > 0))
    }

    /// The unit of a namespace that the host sees.
    /// How a command for a namespace without a unit ends: one that is awaited may be sent again.
    fn absent(&self, namespace: u32) -> Status {
        let map = self.nexus().map(|n| n.map());
        let lun = u64::from(namespace).checked_sub(1);
        match map.zip(lun).is_some_and(|(map, lun)| map.awaits(lun)) {
            true => Status::NOT_READY,
            false => Status::INVALID_NAMESPACE,
        }
    }

    fn unit(&self, namespace: u32) -> Option<Arc<Device>> {
        if namespace == 0 || namespace == NSID_ALL {
            return None;
        }
        let nexus = self.nexus()?;
        let path = nexus.path_of(lun_of(namespace))?;
        if path.lun() != u64::from(namespace - 1) {
            return None;
        }
        let device = path.device().clone();
        let map = nexus.map();
        let is_visible = map.get(path.lun()).and_then(|e| namespace_of(e)) == Some(namespace);
        if !is_visible {
            return None;
        }
        if !self.is_known(namespace, &device) {
            self.conn.io.close(CloseReason::Exchanged);
            return None;
        }
        Some(device)
    }

    /// All data of a command is here.
    pub fn data_complete(&self, tag: u32) {
        let free = self.with(tag, |t| t.work == Work::Free).unwrap_or(false);
        match free {
            true => self.free_ranges(tag),
            false => self.ready(tag),
        }
    }

    /// Dataset Management: one UNMAP of all ranges, where they are not too much for one. Hints are
    /// taken and forgotten, and so is deallocation where nothing can be.
    fn free_ranges(&self, tag: u32) {
        let Some((ranges, lun, attributes)) = self.with(tag, |t| {
            let [count, attributes, ..] = t.command.dwords;
            let mut ranges = Range::decode_all(&t.data.to_vec());
            ranges.truncate(usize::try_from((count & 0xff) + 1).unwrap_or(usize::MAX));
            (ranges, t.lun, attributes)
        }) else {
            return;
        };
        let path = self.nexus().and_then(|n| n.path_of(lun));
        let Some(path) = path else { return self.finish_task(tag, Status::INVALID_NAMESPACE) };
        let device = path.device();
        let fits =
            |r: &Range| r.lba.checked_add(r.blocks.into()).is_some_and(|e| e <= device.blocks());
        if !ranges.iter().all(fits) {
            return self.finish_task(tag, Status::LBA_OUT_OF_RANGE);
        }
        if attributes & DEALLOCATE == 0 || !device.spec().can_delete {
            return self.finish_task(tag, Status::SUCCESS);
        }
        let (blocks_max, descriptors_max) = unmap_limits(device);
        let lists = unmap_lists(&ranges, blocks_max, descriptors_max);
        if lists.is_empty() {
            return self.finish_task(tag, Status::SUCCESS);
        }
        self.with(tag, |t| {
            t.lists = lists.into();
            t.data.clear();
        });
        self.ready(tag);
    }
}
