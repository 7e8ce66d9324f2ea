//! Devices joined by config strings.

use std::rc::Rc;

use bio::{Errno, Extent, Pool, PoolConfig, Segs};
use fileserver::config::Device;
use fileserver::medium::{VolumeDevices, volume_devices};
use reactor::model::{DiskOp, Fault};
use reactor::sim::World;
use reactor::{Reactor, SeededRandom};

use super::disk::{Disk, Plugged};
use super::server::run;

const BLOCK: u32 = 4096;

/// `w0`, `w1` ... are disks of these blocks.
fn build(
    text: &str,
    blocks: &[u64],
    reactor: &Reactor,
) -> (Result<VolumeDevices, String>, Vec<Rc<Disk>>) {
    let disks: Vec<Rc<Disk>> = (0..)
        .zip(blocks)
        .map(|(i, n)| Disk::new(&format!("w{i}"), n * u64::from(BLOCK), i))
        .collect();
    let device: Device = text.parse().unwrap();
    let stand = volume_devices(&device, BLOCK, &mut |leaf| match leaf {
        Device::Disk(_, n) => Ok(Rc::new(Plugged(disks[n[0] as usize].clone(), reactor.clone()))),
        other => Err(format!("{other}: no such disk")),
    });
    (stand, disks)
}

fn segs(pool: &Pool, bytes: &[u8]) -> Segs {
    let segs = Segs::alloc(pool, bytes.len()).unwrap();
    segs.copy_from(0, bytes);
    segs
}

/// Writes and reads anywhere agree with a plain array.
fn agrees(text: &'static str, blocks: &'static [u64], size: u64) {
    let world = World::new(7);
    let reactor = Reactor::simulated(&world, "media");
    let (stand, _) = build(text, blocks, &reactor);
    let medium = stand.map(|s| s.cache).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(medium.size(), size * u64::from(BLOCK), "{text}");
    run(&world, &reactor, async move {
        let pool = Pool::new(PoolConfig { limit_bytes: 16 << 20 });
        let mut r = SeededRandom::new(3);
        let mut model = vec![0_u8; (size * u64::from(BLOCK)) as usize];
        for _ in 0..300 {
            let at = r.below(size);
            let n = 1 + r.below((size - at).min(9));
            let (from, len) = ((at * 4096) as usize, (n * 4096) as usize);
            if r.chance(500) {
                let bytes: Vec<u8> = (0..len).map(|_| r.next_u64() as u8).collect();
                medium.write(from as u64, segs(&pool, &bytes)).await.unwrap();
                model[from..from + len].copy_from_slice(&bytes);
            } else {
                let into = segs(&pool, &vec![0; len]);
                let mut handles = Segs::default();
                into.iter().for_each(|s| handles.push(s.clone()));
                medium.read(from as u64, handles).await.unwrap();
                assert!(into.to_vec() == model[from..from + len], "{text} at {at}");
            }
        }
        medium.flush().await.unwrap();
        let outside = medium.write(size * 4096, segs(&pool, &[0; 4096])).await;
        assert!(outside.is_err(), "{text}: behind the end");
    });
    reactor.shutdown();
}

#[test]
fn joined_devices_agree_with_one_array() {
    agrees("(w0w1w2)", &[5, 1, 9], 15);
    agrees("[w0w1w2]", &[7, 5, 9], 15);
    agrees("{w0w1}", &[20, 12], 12);
    agrees("p(w0)25.50", &[41], 20);
    agrees("p(w0)3.170", &[300], 167);
    agrees("([w0w1]{w2w3}p(w4)50.50)", &[4, 4, 6, 8, 10], 19);
}

#[test]
fn top_level_mirror_of_a_worm_becomes_its_copies() {
    let world = World::new(1);
    let reactor = Reactor::simulated(&world, "media");
    let legs = |text: &str| build(text, &[9; 6], &reactor).0.map(|s| s.members.len());
    assert_eq!(legs("cw0{w1w2}"), Ok(2));
    assert_eq!(legs("cw0{(w1w2)w3[w4w5]}"), Ok(3));
    assert_eq!(legs("cw0w1"), Ok(1));
    assert_eq!(legs("w0"), Ok(0));
    let why = |text: &str| build(text, &[9; 6], &reactor).0.err().unwrap_or_default();
    assert!(why("cw0fw1").contains("fake WORM"));
    assert!(why("ce1.1w1").contains("e1.1: no such disk"));
    assert!(why("p(w0)20.4711").contains("does not fit"));
    reactor.shutdown();
}

#[test]
fn mirror_reads_from_any_member_and_fails_if_one_member_write_fails() {
    let world = World::new(2);
    let reactor = Reactor::simulated(&world, "media");
    let (stand, disks) = build("{w0w1}", &[9, 9], &reactor);
    let medium = stand.map(|s| s.cache).unwrap_or_else(|e| panic!("{e}"));
    run(&world, &reactor, async move {
        let pool = Pool::new(PoolConfig { limit_bytes: 1 << 20 });
        medium.write(0, segs(&pool, &[3; 4096])).await.unwrap();
        disks[0].failing.set(1000);
        assert!(medium.write(0, segs(&pool, &[4; 4096])).await.is_err());
        assert!(medium.flush().await.is_err());
        disks[0].failing.set(0);
        let range = Extent::new(0, 9 * 4096).unwrap();
        let bad = Fault { range, op: DiskOp::Read, error: Errno::Io, times: None };
        let read = async || {
            let into = segs(&pool, &[0; 4096]);
            let mut handles = Segs::default();
            into.iter().for_each(|s| handles.push(s.clone()));
            medium.read(0, handles).await.map(|()| into.to_vec()[0])
        };
        disks[0].with(|d| d.fail(bad)).unwrap();
        assert_eq!(read().await, Ok(4), "the last member was written first");
        disks[1].with(|d| d.fail(bad)).unwrap();
        assert_eq!(read().await, Err(Errno::Io));
        assert_eq!(medium.name(), "{w0w1}");
    });
    reactor.shutdown();
}
