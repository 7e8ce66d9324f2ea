//! Slow requests on the command line.

use super::daemon::Daemon;
use crate::api::{Exit, SlowRequest, TraceState, TracedLayer};

fn layer(geom: &str, took_ms: u64, own_ms: u64, below: Vec<TracedLayer>) -> TracedLayer {
    TracedLayer {
        geom: geom.to_owned(),
        provider: "m0".to_owned(),
        took_ns: took_ms * 1_000_000,
        own_ns: own_ms * 1_000_000,
        offset_bytes: 8192,
        length_bytes: 4096,
        below,
        ..TracedLayer::default()
    }
}

/// A daemon with a request of 18 ms, which its limit held for 10 ms, and with one of 1 ms.
fn slow() -> Daemon {
    let daemon = Daemon::start();
    let failed =
        TracedLayer { error: Some("EIO".to_owned()), ..layer("disk:d0", 8, 8, Vec::new()) };
    let request = SlowRequest {
        id: 1,
        initiator: "iqn.h:one\u{1b}".to_owned(),
        lun: Some(0),
        operation: "read".to_owned(),
        is_complete: true,
        layer: layer("limit:l0", 18, 10, vec![failed]),
        ..SlowRequest::default()
    };
    let quick = layer("limit:l0", 1, 1, Vec::new());
    let quick = SlowRequest { id: 2, layer: quick, ..SlowRequest::default() };
    let requests = vec![request, quick];
    daemon.plant.set_traced(TraceState { last: 2, requests, ..TraceState::default() });
    daemon
}

#[test]
fn trace_shows_slow_requests_and_the_layer_that_took_most() {
    let daemon = slow();
    assert_eq!(
        daemon.expect_exit("trace --seconds 0", Exit::Done),
        "18.0ms  read  m0  4096 bytes at 8192  iqn.h:one\\u{1b}  LUN 0\n\
         `- limit:l0  18.0ms  itself 10.0ms\n   \
         `- disk:d0  8.0ms  itself 8.0ms  EIO  FAILED\n\
         1 request took 10.0ms or longer\n\
         layer     parts  time in itself  share\n\
         limit:l0      1          10.0ms    55%\n\
         disk:d0       1           8.0ms    44%\n"
    );
    let none = daemon.expect_exit("trace --seconds 0 --geom d1", Exit::Done);
    assert_eq!(none, "0 requests took 10.0ms or longer\n");
    let all = daemon.expect_exit("trace --seconds 0 --slow 1us --lun m0 --json", Exit::Done);
    let value: serde_json::Value = serde_json::from_str(&all).expect("JSON");
    assert_eq!((&value["total"], &value["requests"][1]["id"]), (&2.into(), &2.into()), "{all}");
    assert_eq!(value["layers"][0]["geom"], "limit:l0");
    let wrong = daemon.expect_exit("trace --slow 10", Exit::Usage);
    assert!(wrong.contains("--slow: `10` is not a time such as 10ms"), "{wrong}");
}
