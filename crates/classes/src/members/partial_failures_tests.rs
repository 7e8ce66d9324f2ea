use super::partial_failures::Court;

#[test]
fn c1_a_member_that_stays_refuses_who_has_only_entered() {
    let court = Court::default();
    court.open(0b01, 'a').expect("open");
    court.open(0b10, 'b').expect("open");
    assert_eq!(court.refused(0b01), ['a']);
    assert_eq!(court.refused(0b01), [], "one answer");
}

#[test]
fn c2_who_was_not_heard_is_not_released() {
    let court = Court::default();
    let early = court.open(0b01, 'a').expect("open");
    // The geom handles another message first: it doubts no member yet.
    assert_eq!(court.released(0), []);
    court.heard(early);
    assert_eq!(court.released(0b01), [], "it is doubted now");
    court.open(0b100, 'b').expect("open");
    assert_eq!(court.released(0b10), ['a'], "and that one is out");
    assert_eq!(court.released(0), []);
}

#[test]
fn c3_all_are_answered_when_it_closes() {
    let court = Court::default();
    let heard = court.open(1, 'a').expect("open");
    court.open(2, 'b').expect("open");
    court.heard(heard);
    assert_eq!(court.closed(), ['a', 'b']);
    assert_eq!(court.open(1, 'c'), None);
    court.heard(heard);
    assert_eq!(court.closed(), []);
}
