//! Timers, tasks, patience and the choice of the port.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use reactor::clock::MS;
use reactor::{Config, PortChoice, PortKind, Reactor, TASK_POLLS_PER_TURN, WaitFor};

use crate::ports::bench::{each_port, gather, run, token};

#[test]
fn timers_fire_in_order_and_cancelled_ones_do_not() {
    each_port(|r| {
        r.after(30 * MS, token(3));
        r.after(10 * MS, token(1));
        let never = r.after(15 * MS, token(9));
        r.after(20 * MS, token(2));
        r.after(0, token(0));
        r.cancel(never);
        let start = r.now();
        let words: Vec<u64> = gather(&r, 4).iter().map(|(t, _)| t.user_data).collect();
        assert_eq!(words, [0, 1, 2, 3]);
        let took = r.now() - start;
        assert!(took >= 30 * MS, "{took} ns");
        r.cancel(never);
    });
}

#[test]
fn sleeping_tasks_wake_in_order() {
    each_port(|r| {
        let log = Rc::new(RefCell::new(Vec::new()));
        for ms in [9u64, 3, 6] {
            let (r2, log) = (r.clone(), log.clone());
            r.spawn("sleeper", async move {
                r2.sleep(ms * MS).await;
                log.borrow_mut().push(ms);
            });
        }
        let r2 = r.clone();
        run(&r, async move { r2.sleep(20 * MS).await });
        assert_eq!(*log.borrow(), [3, 6, 9]);
    });
}

#[test]
fn turn_returns_when_its_patience_ends() {
    each_port(|r| {
        let t = r.turn(WaitFor::Peek, &mut |_, _| ());
        assert!(t.is_idle() && !t.parked);
        let end = r.fresh_now() + 20 * MS;
        let t = r.turn(WaitFor::Until(end), &mut |_, _| ());
        assert!(t.parked && t.is_idle());
        // The kernel counts in milliseconds.
        assert!(r.fresh_now() + MS >= end, "{} of {end} ns", r.fresh_now());
    });
}

#[test]
fn a_greedy_task_does_not_starve_timers() {
    each_port(|r| {
        let r2 = r.clone();
        let greedy = r.spawn("greedy", async move {
            loop {
                r2.yield_now().await;
            }
        });
        r.after(5 * MS, token(1));
        assert_eq!(gather(&r, 1), [(token(1), Ok(0))]);
        greedy.abort();
        assert!(greedy.is_finished());
        assert!(r.turn(WaitFor::Peek, &mut |_, _| ()).polls <= 1);
    });
}

#[test]
fn one_turn_polls_a_bounded_number_of_tasks() {
    each_port(|r| {
        for _ in 0..TASK_POLLS_PER_TURN + 10 {
            r.spawn("one", async {});
        }
        let polls = |r: &Reactor| r.turn(WaitFor::Peek, &mut |_, _| ()).polls;
        assert_eq!(polls(&r), TASK_POLLS_PER_TURN);
        assert_eq!(polls(&r), 10);
        assert!(r.tasks().is_empty());
    });
}

#[test]
fn mark_belongs_to_its_task_only() {
    each_port(|r| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        for (at, marked) in [(1, 0), (2, 20), (3, 0)] {
            let (own, seen) = (r.clone(), seen.clone());
            r.spawn_marked("marked", marked, async move {
                assert_eq!(own.mark(), marked);
                if at == 3 {
                    own.set_mark(30);
                }
                for _ in 0..2 {
                    own.yield_now().await;
                    seen.borrow_mut().push((at, own.mark()));
                }
            });
        }
        while !r.tasks().is_empty() {
            r.turn(WaitFor::Peek, &mut |_, _| ());
            assert_eq!(r.mark(), 0, "between tasks there is none");
            r.set_mark(7);
            assert_eq!(r.mark(), 0);
        }
        assert_eq!(*seen.borrow(), [(1, 0), (2, 20), (3, 30)].repeat(2));
    });
}

/// T2.
#[test]
fn a_wake_of_an_ended_task_polls_no_task_in_its_place() {
    each_port(|r| {
        let kept = Rc::new(RefCell::new(None::<Waker>));
        let keeper = kept.clone();
        let first = r.spawn(
            "first",
            poll_fn(move |cx| {
                keeper.replace(Some(cx.waker().clone()));
                Poll::<()>::Pending
            }),
        );
        r.turn(WaitFor::Peek, &mut |_, _| ());
        first.abort();
        let polls = Rc::new(Cell::new(0));
        let count = polls.clone();
        let second = r.spawn(
            "second",
            poll_fn(move |_| {
                count.set(count.get() + 1);
                Poll::<()>::Pending
            }),
        );
        r.turn(WaitFor::Peek, &mut |_, _| ());
        assert_eq!(polls.get(), 1);
        kept.borrow().as_ref().expect("the first task was polled").wake_by_ref();
        r.turn(WaitFor::Peek, &mut |_, _| ());
        assert_eq!(polls.get(), 1);
        second.abort();
    });
}

/// T3.
#[test]
fn aborting_drops_the_future_and_a_task_may_abort_itself() {
    each_port(|r| {
        let held = Rc::new(());
        let inside = held.clone();
        let task = r.spawn("waits", async move {
            std::future::pending::<()>().await;
            drop(inside);
        });
        r.turn(WaitFor::Peek, &mut |_, _| ());
        assert_eq!(Rc::strong_count(&held), 2);
        task.abort();
        task.abort();
        assert_eq!(Rc::strong_count(&held), 1);

        let own = Rc::new(RefCell::new(None::<reactor::TaskHandle>));
        let (inside, own2) = (held.clone(), own.clone());
        *own.borrow_mut() = Some(r.spawn("suicide", async move {
            if let Some(handle) = &*own2.borrow() {
                handle.abort();
            }
            std::future::pending::<()>().await;
            drop(inside);
        }));
        r.turn(WaitFor::Peek, &mut |_, _| ());
        assert_eq!(Rc::strong_count(&held), 1, "gone once it returned");
        assert!(r.tasks().is_empty());
    });
}

#[test]
fn port_is_chosen_and_the_reason_reported() {
    let config = |port| Config { port, ..Config::default() };
    let auto = Reactor::start(config(PortChoice::Auto)).unwrap().port();
    assert_eq!(auto.kind, PortKind::Uring, "{auto}");
    let poll = Reactor::start(config(PortChoice::Poll)).unwrap().port();
    assert_eq!(poll.kind, PortKind::Poll);
    assert!(poll.why.contains("configured"));
}

#[test]
fn a_pinned_reactor_works_and_a_missing_cpu_is_refused() {
    std::thread::spawn(|| {
        for port in [PortChoice::Uring, PortChoice::Poll] {
            let config =
                |cpu| Config { port, cpu: Some(cpu), spin_ns: 50_000, ..Config::default() };
            let r = Reactor::start(config(0)).unwrap();
            r.after(MS, token(1));
            gather(&r, 1);
            assert!(Reactor::start(config(100_000)).is_err());
        }
    })
    .join()
    .unwrap();
}

#[test]
fn random_numbers_differ() {
    each_port(|r| {
        let mut seen: Vec<u64> = (0..1000).map(|_| r.random()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
    });
}

/// Context switches of this thread, from /proc.
fn switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("voluntary_ctxt_switches")).unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

#[test]
fn an_idle_reactor_sleeps() {
    each_port(|r| {
        let before = switches();
        r.turn(WaitFor::Until(r.fresh_now() + 200 * MS), &mut |_, _| ());
        // The kernel may put us aside for its own reasons (a page fault). A loop that looked
        // around every millisecond would be seen two hundred times.
        let woken = switches() - before;
        assert!(woken <= 10, "{woken} wakeups");
    });
}

#[test]
fn signal_wakes_its_waiter_once_and_a_deadline_ends_the_wait() {
    each_port(|r| {
        let (bell, r2) = (reactor::Signal::new(), r.clone());
        bell.notify();
        let ringer = bell.clone();
        run(&r, async move {
            bell.wait().await;
            assert_eq!(r2.within(3 * MS, bell.wait()).await, None, "rung once only");
            let r3 = r2.clone();
            r2.spawn("ringer", async move {
                r3.sleep(MS).await;
                ringer.notify();
            });
            assert_eq!(r2.within(500 * MS, bell.wait()).await, Some(()));
        });
    });
}
