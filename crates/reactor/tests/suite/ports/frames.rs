//! Raw Ethernet on the loopback interface, where every reader gets what any of them sends. Needs
//! CAP_NET_RAW; the type is one for local experiments (IEEE 802), each test's own. Frames of the
//! loopback interface are too long for a ring: those tests have a cable (veth) of their own.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::Rc;

use bio::Segs;
use reactor::{FRAME_MIN, FRAMES_QUEUED_MAX, Link, LinkMode, Reactor};
use testkit::cable::{Cable, ip};

use crate::ports::bench::{each_port, filled, pool, run};

const HEAD: usize = 14;

/// The header of a frame from the all-zero address to itself.
fn head(ethertype: u16) -> Vec<u8> {
    let mut head = vec![0; 12];
    head.extend(ethertype.to_be_bytes());
    head
}

/// Waits until `count` frames have arrived; returns their payloads.
fn take(r: &Reactor, link: &Link, count: usize) -> Vec<Vec<u8>> {
    let frames = Rc::new(RefCell::new(Vec::new()));
    let (link, into) = (link.clone(), frames.clone());
    run(r, async move {
        while into.borrow().len() < count {
            link.ready().await.unwrap();
            let mut keep = |frame: &[u8]| into.borrow_mut().push(frame[HEAD..].to_vec());
            link.receive(7, &mut keep).unwrap();
        }
    });
    frames.take()
}

#[test]
fn frames_of_head_and_segments_arrive_whole_in_batches() {
    each_port(|r| {
        let (a, b) = (r.link("lo", 0x88B5).unwrap(), r.link("lo", 0x88B5).unwrap());
        let none = b.receive(1, &mut |_| panic!("nothing was sent")).unwrap();
        assert_eq!(none, 0);
        let memory = pool();
        let bytes: Vec<u8> = (0..8000u32).map(|i| (i / 3) as u8).collect();
        let rest = filled(&memory, &bytes);
        let mut first = head(0x88B5);
        first.extend(b"first");
        a.send(&first, &Segs::new()).unwrap();
        for i in 0..100u8 {
            let mut numbered = head(0x88B5);
            numbered.push(i);
            a.send(&numbered, &rest).unwrap();
        }
        assert_eq!((a.queued(), a.counts().frames_out), (101, 0));
        let went = Rc::new(Cell::new(0));
        let (sender, count) = (a.clone(), went.clone());
        run(&r, async move {
            while sender.queued() > 0 {
                count.set(count.get() + sender.flush().unwrap());
                sender.writable().await.unwrap();
            }
        });
        assert_eq!(went.get(), 101);
        let got = take(&r, &b, 101);
        assert_eq!(got[0][..5], *b"first");
        assert!(got[0][5..].iter().all(|b| *b == 0));
        assert_eq!(got[0].len(), FRAME_MIN - HEAD, "filled up");
        for (i, frame) in got[1..].iter().enumerate() {
            assert_eq!(frame[0], i as u8, "in order");
            assert!(frame[1..] == bytes, "frame {i}");
        }
        let (sent, came) = (a.counts(), b.counts());
        assert_eq!((sent.frames_out, sent.dropped), (101, 0));
        assert_eq!((came.frames_in, came.bytes_in), (sent.frames_out, sent.bytes_out));
        assert_eq!(b.receive(1, &mut |_| panic!("all were taken")).unwrap(), 0);
    });
}

#[test]
fn full_queue_refuses_frames_until_a_flush() {
    each_port(|r| {
        let link = r.link("lo", 0x88B6).unwrap();
        for _ in 0..FRAMES_QUEUED_MAX {
            link.send(&head(0x88B6), &Segs::new()).unwrap();
        }
        let full = link.send(&head(0x88B6), &Segs::new()).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        assert_eq!(link.flush().unwrap(), FRAMES_QUEUED_MAX);
        link.send(&head(0x88B6), &Segs::new()).unwrap();
        assert_eq!(link.flush().unwrap(), 1);
    });
}

#[test]
fn oversized_frame_is_dropped_and_others_are_sent() {
    each_port(|r| {
        let link = r.link("lo", 0x88B7).unwrap();
        let mtu = link.facts().unwrap().mtu as usize;
        let rest = filled(&pool(), &vec![7; mtu + 1]);
        link.send(&head(0x88B7), &rest).unwrap();
        link.send(&head(0x88B7), &Segs::new()).unwrap();
        assert_eq!(link.flush().unwrap(), 1);
        let counts = link.counts();
        assert_eq!((counts.frames_out, counts.dropped), (1, 1));
    });
}

#[test]
fn interface_reports_its_facts_and_unknown_ones_are_not_found() {
    each_port(|r| {
        let facts = r.link("lo", 0x88B5).unwrap().facts().unwrap();
        assert_eq!((facts.index, facts.mac, facts.up), (1, [0; 6], true));
        let none = r.link("nowhere0", 0x88B5).err().unwrap();
        assert_eq!(none.kind(), ErrorKind::NotFound);
        assert!(none.to_string().contains("nowhere0"), "{none}");
        for bad in ["", "a-name-that-is-too-long-for-one"] {
            let error = r.link(bad, 0x88B5).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
    });
}

/// Sends numbered frames of `len` bytes from one end and takes them at the other, which is read
/// when `burst` of them are there.
fn through(r: &Reactor, a: &Link, b: &Link, len: usize, frames: u32, burst: usize) {
    let bytes: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
    let rest = filled(&pool(), &bytes);
    let mut number = 0;
    while number < frames {
        let now = burst.min((frames - number) as usize);
        for n in 0..now as u32 {
            let mut numbered = head(0x88B5);
            numbered.extend((number + n).to_le_bytes());
            a.send(&numbered, &rest).unwrap();
        }
        while a.queued() > 0 {
            a.flush().unwrap();
        }
        for frame in take(r, b, now) {
            assert_eq!(frame[..4], number.to_le_bytes(), "in order, none lost");
            assert!(frame[4..] == bytes, "frame {number}");
            number += 1;
        }
    }
}

/// G1.
#[test]
fn ring_delivers_the_same_frames_as_calls_and_wraps_around() {
    each_port(|r| {
        let cable = Cable::create("9000");
        let [near, far] = &cable.ends;
        let a = r.link_by(near, 0x88B5, LinkMode::Calls).unwrap();
        for way in [LinkMode::Auto, LinkMode::Ring, LinkMode::Calls] {
            let b = r.link_by(far, 0x88B5, way).unwrap();
            let took = if way == LinkMode::Calls { LinkMode::Calls } else { LinkMode::Ring };
            assert_eq!(b.mode(), took, "{way:?}");
            assert_eq!(b.receive(64, &mut |_| panic!("nothing was sent")).unwrap(), 0);
            // More than a ring has places, at any place of a batch.
            through(&r, &a, &b, 8992, 3000, 50);
            assert_eq!(b.receive(64, &mut |_| panic!("all were taken")).unwrap(), 0);
            assert_eq!((b.counts().frames_in, b.counts().oversized), (3000, 0));
        }
    });
}

#[test]
fn full_ring_loses_frames_and_continues() {
    each_port(|r| {
        let cable = Cable::create("9000");
        let [near, far] = &cable.ends;
        let a = r.link(near, 0x88B5).unwrap();
        let b = r.link_by(far, 0x88B5, LinkMode::Ring).unwrap();
        for n in 0..6000u32 {
            let mut numbered = head(0x88B5);
            numbered.extend(n.to_le_bytes());
            a.send(&numbered, &Segs::new()).unwrap();
            while n % 100 == 99 && a.queued() > 0 {
                a.flush().unwrap();
            }
        }
        let mut next = 0;
        let mut count = |frame: &[u8]| {
            assert_eq!(frame[HEAD..HEAD + 4], u32::to_le_bytes(next), "the first ones, in order");
            next += 1;
        };
        while b.receive(64, &mut count).unwrap() > 0 {}
        assert!((500..6000).contains(&next), "{next} frames were kept");
        through(&r, &a, &b, 1000, 200, 20);
    });
}

#[test]
fn larger_mtu_enlarges_the_ring_and_finally_replaces_it_by_calls() {
    each_port(|r| {
        let cable = Cable::create("1500");
        let [near, far] = &cable.ends;
        let (a, b) = (r.link(near, 0x88B5).unwrap(), r.link(far, 0x88B5).unwrap());
        through(&r, &a, &b, 1496, 100, 10);
        cable.mtu("9000");
        // The link has not noticed the new MTU yet: its buffers are too small for such frames.
        a.send(&head(0x88B5), &filled(&pool(), &[7; 5000])).unwrap();
        a.flush().unwrap();
        assert_eq!(b.receive(64, &mut |_| panic!("it is too long")).unwrap(), 1);
        assert_eq!(b.counts().oversized, 1);
        for (mtu, way) in [("9000", LinkMode::Ring), ("40000", LinkMode::Calls)] {
            cable.mtu(mtu);
            let mtu = mtu.parse().unwrap();
            assert_eq!((b.facts().unwrap().mtu, b.mode()), (mtu, way));
            through(&r, &a, &b, mtu as usize - 4, 100, 10);
        }
        let refused = r.link_by(far, 0x88B5, LinkMode::Ring).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    });
}

#[test]
fn interface_down_is_reported_with_ring_and_with_calls() {
    each_port(|r| {
        let cable = Cable::create("9000");
        let far = &cable.ends[1];
        for way in [LinkMode::Ring, LinkMode::Calls] {
            let b = r.link_by(far, 0x88B5, way).unwrap();
            ip(&["link", "set", far, "down"]);
            let link = b.clone();
            let link_error = Rc::new(Cell::new(None));
            let into = link_error.clone();
            run(&r, async move {
                let error = match link.ready().await {
                    Ok(()) => link.receive(64, &mut |_| ()).err(),
                    Err(e) => Some(e),
                };
                into.set(error.map(|e| e.kind()));
            });
            assert_eq!(link_error.get(), Some(ErrorKind::NetworkDown), "{way:?}");
            cable.up(1);
        }
    });
}
