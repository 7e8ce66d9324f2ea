use super::partial_failures::PartialFailures;

#[test]
fn c1_a_member_that_stays_refuses_who_has_only_entered() {
    let failures = PartialFailures::default();
    failures.open(0b01, 'a').expect("open");
    failures.open(0b10, 'b').expect("open");
    assert_eq!(failures.refused(0b01), ['a']);
    assert_eq!(failures.refused(0b01), [], "one answer");
}

#[test]
fn c2_who_was_not_heard_is_not_released() {
    let failures = PartialFailures::default();
    let early = failures.open(0b01, 'a').expect("open");
    // The geom handles another message first: it doubts no member yet.
    assert_eq!(failures.released(0), []);
    failures.heard(early);
    assert_eq!(failures.released(0b01), [], "it is doubted now");
    failures.open(0b100, 'b').expect("open");
    assert_eq!(failures.released(0b10), ['a'], "and that one is out");
    assert_eq!(failures.released(0), []);
}

#[test]
fn c3_all_are_answered_when_it_closes() {
    let failures = PartialFailures::default();
    let heard = failures.open(1, 'a').expect("open");
    failures.open(2, 'b').expect("open");
    failures.heard(heard);
    assert_eq!(failures.closed(), ['a', 'b']);
    assert_eq!(failures.open(1, 'c'), None);
    failures.heard(heard);
    assert_eq!(failures.closed(), []);
}
