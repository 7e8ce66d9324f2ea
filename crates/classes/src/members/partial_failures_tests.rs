//! Tests of the writes that wait for a decision about a member (C1 to C3).

use super::partial_failures::PartialFailures;

#[test]
fn c1_entered_write_is_refused_when_the_member_stays() {
    let failures = PartialFailures::default();
    failures.open(0b01, 'a').expect("open");
    failures.open(0b10, 'b').expect("open");
    assert_eq!(failures.refused(0b01), ['a']);
    assert_eq!(failures.refused(0b01), [], "one answer");
}

#[test]
fn c2_write_is_not_released_before_the_geom_received_it() {
    let failures = PartialFailures::default();
    let early = failures.open(0b01, 'a').expect("open");
    // The geom handles another message first: it doubts no member yet.
    assert_eq!(failures.released(0), []);
    failures.set_reported(early);
    assert_eq!(failures.released(0b01), [], "it is doubted now");
    failures.open(0b100, 'b').expect("open");
    assert_eq!(failures.released(0b10), ['a'], "and that one is out");
    assert_eq!(failures.released(0), []);
}

#[test]
fn c3_closing_answers_every_waiting_write() {
    let failures = PartialFailures::default();
    let failure = failures.open(1, 'a').expect("open");
    failures.open(2, 'b').expect("open");
    failures.set_reported(failure);
    assert_eq!(failures.closed(), ['a', 'b']);
    assert_eq!(failures.open(1, 'c'), None);
    failures.set_reported(failure);
    assert_eq!(failures.closed(), []);
}
