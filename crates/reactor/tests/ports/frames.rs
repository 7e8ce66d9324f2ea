//! Raw Ethernet on the loopback interface, where every reader gets what any of them sends. Needs
//! CAP_NET_RAW; the type is one for local experiments (IEEE 802), each test's own.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::rc::Rc;

use bio::Segs;
use reactor::{FRAME_MIN, FRAMES_QUEUED_MAX, Link, Reactor};

use crate::bench::{each_port, filled, pool, run};

const HEAD: usize = 14;

/// The header of a frame from everybody's address to itself.
fn head(ethertype: u16) -> Vec<u8> {
    let mut head = vec![0; 12];
    head.extend(ethertype.to_be_bytes());
    head
}

/// Waits until `count` frames have come; what they carry.
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
fn frames_come_whole_many_a_call_from_memory_and_from_heads() {
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
fn a_full_queue_says_so_and_goes_on_after_a_flush() {
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
fn a_frame_that_is_too_long_is_dropped_and_others_go() {
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
fn interfaces_say_who_they_are_and_others_are_not_found() {
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
