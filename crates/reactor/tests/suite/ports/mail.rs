//! Messages and wakes from other threads.

use std::thread;
use std::time::Duration;

use reactor::{MAILBOX_MESSAGES_MAX, SendError, WaitFor};

use crate::ports::bench::{each_port, run};

/// W2.
#[test]
fn messages_from_other_threads_arrive_once_and_in_order() {
    each_port(|r| {
        let (mailer, mailbox) = r.mailbox::<(u32, u32)>();
        let threads: Vec<_> = (0..3)
            .map(|who| {
                let mailer = mailer.clone();
                thread::spawn(move || {
                    for n in 0..500 {
                        if n % 100 == 0 {
                            thread::sleep(Duration::from_millis(3));
                        }
                        mailer.send((who, n)).unwrap();
                    }
                })
            })
            .collect();
        drop(mailer);
        let got = run(&r, async move {
            let mut got = Vec::new();
            while let Some(m) = mailbox.recv().await {
                got.push(m);
            }
            got
        });
        threads.into_iter().for_each(|t| t.join().unwrap());
        for who in 0..3 {
            let of = got.iter().filter(|m| m.0 == who).map(|m| m.1);
            assert!(of.eq(0..500));
        }
    });
}

/// W2.
#[test]
fn a_sleeping_reactor_is_woken_by_one_message() {
    each_port(|r| {
        let (mailer, mailbox) = r.mailbox::<u32>();
        for round in 0..20 {
            let mailer = mailer.clone();
            let sender = thread::spawn(move || {
                thread::sleep(Duration::from_millis(2));
                mailer.send(round).unwrap();
            });
            let mut got = None;
            while got.is_none() {
                r.turn(WaitFor::Forever, &mut |_, _| ());
                got = mailbox.try_recv();
            }
            assert_eq!(got, Some(round));
            sender.join().unwrap();
        }
    });
}

#[test]
fn full_or_closed_mailbox_returns_the_message() {
    each_port(|r| {
        let (mailer, mailbox) = r.mailbox::<usize>();
        for n in 0..MAILBOX_MESSAGES_MAX {
            mailer.send(n).unwrap();
        }
        assert_eq!(mailer.send(1), Err(SendError::Full(1)));
        assert_eq!(mailbox.try_recv(), Some(0));
        mailer.send(2).unwrap();
        drop(mailbox);
        assert_eq!(mailer.send(3), Err(SendError::Closed(3)));
        assert!(mailer.is_closed());
    });
}
