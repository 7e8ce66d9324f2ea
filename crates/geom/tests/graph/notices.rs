//! Messages of layers and tasks to their geom, and functions that a geom runs on the cores.

use std::sync::{Arc, Mutex};

use bio::Errno;
use geom::{Access, Geom, GeomId, Notice, Topology, Unanswered};

use crate::common::{BLOCK, Lab, Leaf, MS, Mode};

type Received = Arc<Mutex<Vec<String>>>;

/// Records the messages that it receives.
struct Recorder(Received);

impl Geom for Recorder {
    fn on_notice(&mut self, _: &mut Topology, _: GeomId, notice: Notice) {
        let text = match notice.downcast::<String>() {
            Ok(text) => *text,
            Err(other) if other.is::<Unanswered>() => "unanswered".into(),
            Err(_) => "something else".into(),
        };
        self.0.lock().expect("heard").push(text);
    }
}

fn ear(lab: &mut Lab) -> (GeomId, Received) {
    let notices = Received::default();
    let ears = Box::new(Recorder(notices.clone()));
    let geom = lab.control.call(|t| t.new_geom("shim", "ear", "a test", ears));
    (geom.expect("a geom"), notices)
}

fn received(notices: &Received) -> Vec<String> {
    notices.lock().expect("heard").clone()
}

#[test]
fn notices_of_each_core_reach_the_geom_in_order() {
    let mut lab = Lab::with_cores(1, 2);
    let (geom, all) = ear(&mut lab);
    let notifier = lab.control.topology.notifier();
    assert_eq!(notifier.cores(), 2);
    for core in 0..2 {
        for n in 0..3 {
            let back = notifier.clone();
            notifier
                .call(core, Box::new(move |_| back.post(geom, Box::new(format!("{core}.{n}")))));
        }
    }
    lab.pass(MS);
    let all = received(&all);
    for core in ["0.", "1."] {
        let of: Vec<&String> = all.iter().filter(|w| w.starts_with(core)).collect();
        let numbers: Vec<&str> = of.iter().map(|w| &w[2..]).collect();
        assert_eq!(numbers, ["0", "1", "2"]);
    }
}

#[test]
fn barrier_waits_for_a_conversation_and_its_answer() {
    let mut lab = Lab::new(2);
    let leaf = Leaf::new(4 * BLOCK);
    let disk = lab.disk("d0", &leaf);
    let (geom, all) = ear(&mut lab);
    let done = lab.control.call(|t| {
        let c = t.attach_new(geom, disk).map_err(|e| geom::Error::of(e, "attach"))?;
        t.access(c, Access::READ).map_err(|e| geom::Error::of(e, "open"))?;
        let edge = t.edge(c);
        t.converse(
            geom,
            "looking",
            Box::new(move |core| {
                Box::pin(async move {
                    let read = core.read(edge, 0, BLOCK as usize).await;
                    Box::new(format!("{:?}", read.map(|b| b.len()))) as Notice
                })
            }),
        );
        Ok(())
    });
    done.expect("at rest");
    assert_eq!(received(&all), [format!("Ok({BLOCK})")], "told before the call returned");
}

#[test]
fn conversation_that_does_not_end_is_reported_as_unanswered() {
    let mut lab = Lab::new(3);
    lab.control.deadlines.job_ns = 50 * MS;
    let leaf = Leaf::new(4 * BLOCK);
    let disk = lab.disk("d0", &leaf);
    leaf.set(Mode::Hold);
    let (geom, all) = ear(&mut lab);
    let done = lab.control.call(|t| {
        let c = t.attach_new(geom, disk).map_err(|e| geom::Error::of(e, "attach"))?;
        t.access(c, Access::READ).map_err(|e| geom::Error::of(e, "open"))?;
        let edge = t.edge(c);
        t.converse(
            geom,
            "looking",
            Box::new(move |core| {
                Box::pin(async move {
                    let _ = core.read(edge, 0, BLOCK as usize).await;
                    Box::new(String::from("it came back")) as Notice
                })
            }),
        );
        Ok(())
    });
    done.expect("the barrier does not wait for ever");
    assert_eq!(received(&all), ["unanswered"]);
}

#[test]
fn full_mailbox_loses_no_notice_and_keeps_the_order() {
    let mut lab = Lab::new(4);
    let (geom, all) = ear(&mut lab);
    let notifier = lab.control.topology.notifier();
    let sent = 70_000;
    for n in 0..sent {
        let back = notifier.clone();
        notifier.call(0, Box::new(move |_| back.post(geom, Box::new(n.to_string()))));
    }
    lab.pass(50 * MS);
    let all = received(&all);
    assert_eq!(all.len(), sent);
    let in_order = all.iter().enumerate().all(|(i, text)| *text == i.to_string());
    assert!(in_order, "those sent while it was full keep their order");
}

#[test]
fn edge_attached_before_a_barrier_is_usable_on_every_core() {
    let mut lab = Lab::with_cores(6, 2);
    let leaf = Leaf::new(4 * BLOCK);
    let disk = lab.disk("d0", &leaf);
    let (geom, all) = ear(&mut lab);
    let edge = lab.control.call(|t| {
        let c = t.attach_new(geom, disk).map_err(|e| geom::Error::of(e, "attach"))?;
        t.access(c, Access::READ).map_err(|e| geom::Error::of(e, "open"))?;
        t.barrier(geom, Box::new(String::from("known")));
        Ok(t.edge(c))
    });
    assert_eq!(received(&all), ["known"], "the idle barrier waited for it");
    let edge = edge.expect("attached");
    for core in 0..2 {
        let back = lab.control.topology.notifier();
        lab.control.topology.notifier().call(
            core,
            Box::new(move |core| {
                let core = core.clone();
                core.reactor().clone().spawn("reading", async move {
                    let read = core.read(edge, 0, BLOCK as usize).await;
                    back.post(geom, Box::new(format!("{:?}", read.is_ok())));
                });
            }),
        );
    }
    lab.pass(MS);
    assert_eq!(received(&all), ["known", "true", "true"]);
}

#[test]
fn notices_for_a_removed_geom_are_dropped() {
    let mut lab = Lab::new(5);
    let (geom, all) = ear(&mut lab);
    let notifier = lab.control.topology.notifier();
    let gone = lab.control.call(|t| {
        t.wither_geom(geom, Errno::NxIo);
        Ok(())
    });
    gone.expect("gone");
    notifier.post(geom, Box::new(String::from("too late")));
    lab.pass(MS);
    assert!(received(&all).is_empty());
}
