//! Recorder of slow requests: which requests it keeps, how many, and for how long.

use bio::{Errno, Op};
use geom::{Limits, SlowRequests};

use crate::common::{Lab, Leaf, MS, Mode, SECOND, SECTOR};

#[test]
fn k1_layers_of_a_slow_request_have_the_times_of_the_clock() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let top = lab.pass_through("s", disk, "waits");
    let user = lab.writer("u", top);
    let core = lab.cores[0].clone();
    assert_eq!(core.slow_requests(MS, SECOND), SlowRequests::default());
    leaf.set(Mode::After(4 * MS));
    lab.spin(MS);
    let sent_ns = core.now();
    let ended = lab.io(lab.edge(user), Op::Read, SECTOR, 2 * SECTOR);
    let slow = core.slow_requests(MS, SECOND);
    assert_eq!((slow.requests.len(), slow.missed), (1, 0), "{slow:?}");
    let request = &slow.requests[0];
    assert!(request.is_complete);
    let [upper, lower] = request.parts[..] else { panic!("{request:?}") };
    assert_eq!((upper.start_ns, upper.end_ns), (sent_ns, ended.at_ns));
    assert_eq!(lower.end_ns, ended.at_ns);
    assert!(lower.start_ns >= sent_ns + 50_000, "the upper layer held it: {lower:?}");
    assert!(upper.is_root() && !lower.is_root() && lower.depth == 1);
    assert_eq!((lower.request, lower.parent), (upper.request, None));
    assert_eq!((upper.op, upper.offset, upper.length), (Op::Read, SECTOR, 2 * SECTOR));
    let names = |edge| lab.control.topology.edge_names(edge).expect("they are there");
    let (above, below) = (names(upper.edge), names(lower.edge));
    assert_eq!((above.user.1.as_str(), above.geom.1.as_str()), ("u", "s"));
    assert_eq!((below.provider.as_str(), below.geom.1.as_str()), ("d0", "d0"));
    // A request that ends at once is not slow, and one that fails is recorded with its error.
    leaf.set(Mode::Now);
    lab.io(lab.edge(user), Op::Read, 0, SECTOR);
    assert!(core.slow_requests(MS, SECOND).requests.is_empty());
    leaf.set(Mode::After(4 * MS));
    let tag = lab.send(lab.edge(user), Op::Write, 0, SECTOR);
    lab.spin(MS);
    leaf.set_failing(1000);
    lab.finish(tag);
    let failed = core.slow_requests(MS, SECOND);
    assert_eq!(failed.requests[0].parts[0].status, Err(Errno::Io));
    lab.assert_empty();
}

#[test]
fn cut_request_is_recorded_with_its_pieces() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::shaped(Limits {
        media_bytes: 1 << 20,
        sector_bytes: 512,
        io_max_bytes: 1024,
        delete_max_bytes: 0,
    });
    let disk = lab.disk("d0", &leaf);
    let user = lab.writer("u", disk);
    let core = lab.cores[0].clone();
    core.slow_requests(MS, SECOND);
    leaf.set(Mode::After(4 * MS));
    lab.io(lab.edge(user), Op::Read, 0, 4 * SECTOR);
    let slow = core.slow_requests(MS, SECOND);
    let parts = &slow.requests[0].parts;
    assert_eq!(parts.len(), 3, "{parts:?}");
    assert!(parts[0].is_cut && parts[0].is_root());
    assert!(parts[1..].iter().all(|p| !p.is_cut && p.parent == Some(parts[0].request)));
    assert_eq!(parts[1..].iter().map(|p| p.length).sum::<u64>(), 4 * SECTOR);
}

#[test]
fn k2_kept_requests_are_bounded_and_the_others_are_counted() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let user = lab.writer("u", disk);
    let core = lab.cores[0].clone();
    core.slow_requests(MS, SECOND);
    leaf.set(Mode::After(4 * MS));
    for n in 0..70 {
        lab.send(lab.edge(user), Op::Read, n * SECTOR, SECTOR);
    }
    lab.spin(20 * MS);
    let slow = core.slow_requests(MS, SECOND);
    assert_eq!((slow.requests.len(), slow.missed), (64, 6));
    assert_eq!(core.slow_requests(MS, SECOND), SlowRequests::default(), "each is given once");
}

#[test]
fn k3_recorder_is_off_before_it_is_asked_and_after_its_lease() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let user = lab.writer("u", disk);
    let core = lab.cores[0].clone();
    leaf.set(Mode::After(4 * MS));
    lab.io(lab.edge(user), Op::Read, 0, SECTOR);
    assert!(!core.records_slow_requests());
    core.slow_requests(MS, SECOND);
    lab.spin(SECOND / 2);
    core.slow_requests(MS, SECOND);
    lab.spin(SECOND / 2);
    assert!(core.records_slow_requests(), "the lease was renewed");
    lab.spin(SECOND);
    assert!(!core.records_slow_requests());
    lab.io(lab.edge(user), Op::Read, 0, SECTOR);
    assert_eq!(core.slow_requests(MS, SECOND), SlowRequests::default(), "it only begins");
}
