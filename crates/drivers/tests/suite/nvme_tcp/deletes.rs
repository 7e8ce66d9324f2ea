//! Deallocated ranges of hosts at the disk: all ranges of one command are one DELETE request.

use std::ops::Range as Bytes;
use std::sync::{Arc, Mutex};

use bio::{Attr, Bio, Errno, Op};
use geom::{Core, Flow, Layer};
use wire::nvme::codes::{admin, cns, io};
use wire::nvme::{Extent, Namespace, NvmLimits, Range};

use crate::common::disk;
use crate::common::plant::Plant;
use crate::nvme_tcp::stage::{SECTORS, play_over};

/// Requests that free blocks, and the bytes they name.
type Gone = Arc<Mutex<Vec<(Op, Vec<Bytes<u64>>)>>>;

struct Notebook(Gone);

impl Layer for Notebook {
    fn start(&self, bio: &mut Bio, _: &Core) -> Flow {
        if matches!(bio.op, Op::Delete | Op::WriteZeroes) {
            self.0.lock().unwrap().push((bio.op, bio.ranges().collect()));
        }
        match bio.op {
            Op::Map | Op::GetAttr => Flow::Done(Err(Errno::NotSup)),
            _ => Flow::Done(Ok(())),
        }
    }

    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }
}

#[test]
fn ranges_of_dataset_management_are_one_request_to_the_disk() {
    let gone = Gone::default();
    let (seen, below) = (gone.clone(), Notebook(gone));
    let build = move |world: &_| {
        Plant::over(world, |control| {
            let attrs =
                [("GEOM::candelete", Attr::Int(1)), ("GEOM::deletereadszero", Attr::Int(1))];
            disk::add_with(control, "slow", SECTORS * 512, Arc::new(below), &attrs);
        })
    };
    play_over(build, |stage| async move {
        let (mut admin, mut queue) = stage.both((false, false)).await;
        let command = admin.command(admin::IDENTIFY, 1, [cns::NAMESPACE.into(), 0, 0, 0, 0, 0]);
        let namespace = Namespace::decode(&admin.ask(command, 4096).await.unwrap().good());
        assert!(namespace.frees && namespace.zeroes);
        let what = [cns::SET_CONTROLLER.into(), 0, 0, 0, 0, 0];
        let command = admin.command(admin::IDENTIFY, 0, what);
        let limits = NvmLimits::decode(&admin.ask(command, 4096).await.unwrap().good());
        assert!(limits.ranges == 255 && limits.range_blocks > 0);
        let ranges = [(100, 4), (8, 8), (3000, 1)];
        let list = ranges.map(|(lba, blocks)| Range { lba, blocks }.encode()).concat();
        for attributes in [0, 4] {
            let dwords = [2, attributes, 0, 0, 0, 0];
            let command = queue.command(io::DATASET_MANAGEMENT, 1, dwords);
            queue.run_in_capsule(command, &list).await.unwrap().good();
        }
        let bytes = |lba: u64, n: u64| lba * 512..(lba + n) * 512;
        let all = vec![bytes(8, 8), bytes(100, 4), bytes(3000, 1)];
        assert_eq!(*seen.lock().unwrap(), [(Op::Delete, all)], "hints let nothing go");
        let extent = Extent { lba: 16, blocks: 16, fua: false, deallocate: true };
        let command = queue.command(io::WRITE_ZEROES, 1, extent.dwords());
        queue.ask(command, 0).await.unwrap().good();
        let last = seen.lock().unwrap().pop();
        assert_eq!(last, Some((Op::WriteZeroes, vec![bytes(16, 16)])));
    });
}
