//! A namespace that becomes another unit while a host is connected (T1 of `nvme_tcp/queue.rs`).

use engine::{GroupSpec, LunSpec};
use testkit::disk::Disk;
use wire::nvme::Namespace;
use wire::nvme::codes::{admin, cns, io, pdu};

use crate::common::disk;
use crate::common::plant::Plant;
use crate::nvme_tcp::host::{Broken, CommandResult, Host, SUBSYSTEM};
use crate::nvme_tcp::stage::{SECTORS, Stage, play_over};

/// The first block, as dwords of a command.
const BLOCK: [u32; 6] = [0; 6];

async fn identify(admin: &mut Host) -> Namespace {
    let command = admin.command(admin::IDENTIFY, 1, [cns::NAMESPACE.into(), 0, 0, 0, 0, 0]);
    Namespace::decode(&admin.ask(command, 4096).await.unwrap().good())
}

/// Writes the first block.
async fn write(queue: &mut Host, byte: u8) -> Result<CommandResult, Broken> {
    let command = queue.command(io::WRITE, 1, BLOCK);
    queue.run_in_capsule(command, &[byte; 512]).await
}

/// Whether a write was refused, and its queue ended.
async fn is_over(queue: &mut Host, result: Result<CommandResult, Broken>) -> bool {
    let refused = result.map_or(true, |result| !result.end.status.is_good());
    refused && queue.is_closed().await
}

/// Makes namespace 1 the unit `other`.
fn exchange(stage: &Stage) {
    let group = GroupSpec {
        name: "all".into(),
        initiators: vec!["*".into()],
        luns: vec![LunSpec { lun: 0, device: "other".into(), read_only: false }],
        ..GroupSpec::default()
    };
    stage.registry.set_groups("nvme_tcp", SUBSYSTEM, &[group]).unwrap();
}

#[test]
fn t1_no_write_reaches_an_exchanged_unit_before_its_host_identified_it() {
    let bytes = SECTORS * 512;
    let (slow, other) = (Disk::slow(bytes), Disk::slow(bytes));
    let (below, beside) = (slow.clone(), other.clone());
    let build = move |world: &_| {
        let mut plant = Plant::new(world, bytes as usize, below);
        plant.add_unit("other", |control| disk::add(control, "other", bytes, beside));
        plant
    };
    play_over(build, |stage| async move {
        let (mut admin, mut queue) = stage.both((false, false)).await;
        let mut late = stage.queue(&admin, 2).await;
        let before = identify(&mut admin).await;
        write(&mut queue, 0x11).await.unwrap().good();
        write(&mut late, 0x22).await.unwrap().good();
        // A write whose data was requested while the namespace was the former unit.
        let mut command = late.command(io::WRITE, 1, BLOCK);
        command.sgl.len = 512;
        late.send(&late.capsule(&command, &[])).await.unwrap();
        let ready = late.receive().await.unwrap();
        assert_eq!(ready.kind(), pdu::READY);

        exchange(&stage);
        let result = write(&mut queue, 0xee).await;
        assert!(is_over(&mut queue, result).await);
        // The connection may have ended already.
        let _ = late.send(&late.host_data(&ready.part(), true, &[0xee; 512])).await;
        let result = late.answer(command.id).await;
        assert!(is_over(&mut late, result).await);
        // Nor does a new queue of that association reach it.
        let mut again = stage.queue(&admin, 3).await;
        let result = write(&mut again, 0xee).await;
        assert!(is_over(&mut again, result).await);
        assert_eq!(other.bytes(0, 512), [0; 512], "written to another disk");

        let after = identify(&mut admin).await;
        assert_ne!(after.eui64, before.eui64);
        let mut queue = stage.queue(&admin, 4).await;
        write(&mut queue, 0x33).await.unwrap().good();
        let back = queue.command(io::READ, 1, BLOCK);
        assert_eq!(queue.ask(back, 512).await.unwrap().good(), [0x33; 512]);
        assert_eq!(other.bytes(0, 512), [0x33; 512]);
        assert_eq!(slow.bytes(0, 512), [0x22; 512]);
    });
}
