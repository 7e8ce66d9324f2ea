//! memory and null, against an array of bytes.

use bio::{Attr, Errno, Flags, Op};
use classes::nop::Nop;
use geom::{Access, Create};
use reactor::PortChoice;
use serde_json::json;

use crate::world::{World, boundaries, exercise};

#[test]
fn memory_agrees_with_an_array_of_bytes() {
    for (seed, sector) in [(1, 512), (2, 4096), (3, 512)] {
        let mut w = World::new(PortChoice::Poll);
        let params = json!({ "size": 3 << 20, "sector_size": sector });
        w.disk("memory", "m0", params).unwrap();
        exercise(&mut w, "m0", seed, 600);
        boundaries(&mut w, "m0");
    }
}

#[test]
fn deleted_memory_is_freed_and_memory_max_holds() {
    let mut w = World::new(PortChoice::Poll);
    let params = json!({ "size": 1u64 << 40, "memory_max": 1 << 20 });
    w.disk("memory", "m0", params).unwrap();
    let edge = w.open("m0");
    let (mib, far) = (vec![1u8; 1 << 20], 1u64 << 39);
    assert_eq!(w.write(edge, far, &mib), Ok(()));
    assert_eq!(w.line_of("m0", "allocated"), format!("{} bytes", 1 << 20));
    assert_eq!(w.write(edge, 0, &[2; 512]), Err(Errno::NoSpc));
    assert_eq!(w.plain(edge, Op::Delete, 0, 1 << 40), Ok(()), "the whole of it, split");
    assert_eq!(w.line_of("m0", "allocated"), "0 bytes");
    assert!(w.read(edge, far, 4096).unwrap().iter().all(|b| *b == 0));
    assert_eq!(w.flagged(edge, Op::WriteZeroes, 0, 1 << 20, Flags::NO_HOLE), Ok(()));
    assert_eq!(w.line_of("m0", "allocated"), format!("{} bytes", 1 << 20));
}

#[test]
fn a_read_only_disk_refuses_writers_and_serves_readers() {
    let mut w = World::new(PortChoice::Poll);
    w.disk("memory", "m0", json!({ "size": 1 << 20, "read_only": true })).unwrap();
    assert_eq!(w.user("m0", Access::WRITE).map(|_| ()), Err(Errno::RoFs));
    let (_, edge) = w.user("m0", Access::READ).unwrap();
    assert_eq!(w.read(edge, 0, 512), Ok(vec![0; 512]));
    assert_eq!(w.write(edge, 0, &[1; 512]), Err(Errno::Perm));
}

#[test]
fn delete_attributes_are_reported_and_forwarded_by_layers() {
    let mut w = World::simulated(1);
    for (n, (kind, own, expected)) in [
        ("memory", json!({}), (1, 1)),
        ("memory", json!({ "read_only": true }), (0, 1)),
        ("null", json!({}), (1, 1)),
        ("null", json!({ "fill": "leave" }), (1, 0)),
        ("model", json!({}), (1, 1)),
        ("model", json!({ "discards": false }), (0, 0)),
    ]
    .into_iter()
    .enumerate()
    {
        let mut params = own.clone();
        params["size"] = json!(1 << 20);
        let name = format!("d{n}");
        let disk = w.disk(kind, &name, params).unwrap();
        let above = format!("d{n}.nop");
        let create = Create { name: &above, members: &[disk], params: &json!({}) };
        w.control.call(|t| geom::filter_class::<Nop>().create(t, &create)).unwrap();
        for on in [name.as_str(), above.as_str()] {
            let t = &w.control.topology;
            let p = t.find(on).unwrap();
            let attributes = (t.attr(p, "GEOM::candelete"), t.attr(p, "GEOM::deletereadszero"));
            let wanted = (Some(Attr::Int(expected.0)), Some(Attr::Int(expected.1)));
            assert_eq!(attributes, wanted, "{kind} {own} {on}");
        }
        if expected == (1, 1) {
            let edge = w.open(&above);
            w.write(edge, 0, &[7; 8192]).unwrap();
            assert_eq!(w.plain(edge, Op::Delete, 512, 4096), Ok(()));
            assert_eq!(w.read(edge, 512, 4096), Ok(vec![0; 4096]), "{kind}");
        }
    }
}

#[test]
fn null_disks_read_as_configured() {
    let mut w = World::new(PortChoice::Poll);
    w.disk("null", "n0", json!({ "size": 1u64 << 50, "sector_size": 4096 })).unwrap();
    w.disk("null", "n1", json!({ "size": 1 << 20, "fill": "leave" })).unwrap();
    boundaries(&mut w, "n0");
    let (e0, e1) = (w.open("n0"), w.open("n1"));
    assert_eq!(w.write(e0, 1 << 49, &[1; 4096]), Ok(()));
    assert_eq!(w.read(e0, 1 << 49, 4096), Ok(vec![0; 4096]));
    assert_eq!(w.read(e1, 0, 512), Ok(vec![0xa5; 512]), "the buffer's own bytes");
    for op in [Op::Flush, Op::Delete, Op::WriteZeroes] {
        assert_eq!(w.plain(e0, op, 0, 4096), Ok(()));
    }
}

#[test]
fn refused_disks_report_a_remedy_and_leave_no_geom() {
    let mut w = World::new(PortChoice::Poll);
    let mut refused = |kind: &str, params| {
        let e = w.disk(kind, "d", params).unwrap_err();
        assert!(w.control.topology.find("d").is_none());
        assert!(w.control.topology.find_geom("disk", "d").is_none());
        e
    };
    let e = refused("memorry", json!({}));
    assert!(e.kind == Errno::NoEnt && e.message.contains("file, blockdev, memory"), "{e}");
    let e = refused("memory", json!({ "size": 1000 }));
    assert!(e.kind == Errno::Inval && e.message.contains("multiple of 512"), "{e}");
    let e = refused("memory", json!({ "size": 4096, "sector_size": 1024 }));
    assert!(e.message.contains("512 or 4096"), "{e}");
    let e = refused("memory", json!({ "size": 4096, "sizes": 1 }));
    assert!(e.message.contains("sizes"), "{e}");
    let e = refused("null", json!({}));
    assert!(e.message.contains("null disk d: missing field `size`"), "{e}");
    w.disk("null", "d", json!({ "size": 4096 })).unwrap();
    let e = w.disk("null", "d", json!({ "size": 4096 })).unwrap_err();
    assert_eq!(e.kind, Errno::Exist);
}
