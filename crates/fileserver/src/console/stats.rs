//! The verb `stats`: activity of caches, WORM and clients.

use std::fmt::Write;

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, answers};
use crate::service::Rate;
use crate::volume::{Facts, percent};

answers! {
    /// The activity of the file server.
    Counts {
        /// Result for people.
        text: String,
        /// Cache and WORM.
        volume: Facts,
        /// Rates over the last 10, 100 and 1000 seconds.
        rates: Vec<Rate>,
        /// Connected clients.
        clients: usize,
        /// Requests answered.
        requests: u64,
        /// Bytes that clients read.
        read: u64,
        /// Bytes that clients wrote.
        written: u64,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Stats {}

impl Verb<FileServer> for Stats {
    const NAME: &'static str = "stats";
    const DOC: &'static str = "Show block cache, cache device, WORM and client activity";
    const DETAIL: &'static str =
        "Rates are averages over the last 10, 100 and 1000 seconds; recent seconds count more.";
    const EXAMPLE: &'static str = "fs stats main";
    type Answer = Counts;

    fn run(self, Call { host, .. }: Call) -> Running<Counts> {
        Box::pin(async move {
            let f = host.files()?.facts();
            let who = host.server.clients();
            let sum = |get: fn(&crate::ninep::ClientInfo) -> u64| who.iter().map(get).sum::<u64>();
            let (requests, read, written) =
                (sum(|p| p.requests), sum(|p| p.read), sum(|p| p.written));
            let mut t = String::new();
            let _ = writeln!(t, "clients   {}; {requests} requests of theirs", who.len());
            let _ = writeln!(t, "          {read} bytes read, {written} written");
            let _ = writeln!(
                t,
                "memory    {} blocks of {}, {} dirty; {}% of {} looks found what they sought",
                f.memory,
                f.block,
                f.dirty,
                percent(f.hits, f.hits + f.misses),
                f.hits + f.misses
            );
            let rates = host.rates.borrow().text();
            t += &rates;
            let ahead = match f.ahead_workers {
                0 => "nothing".to_owned(),
                n => format!("{} bytes by {n} workers", f.ahead_bytes),
            };
            let (came, full) = (f.ahead_loaded, f.ahead_dropped);
            let _ = writeln!(t, "ahead     {ahead}; {came} blocks read, {full} left out");
            let _ = writeln!(
                t,
                "cache     {}% of {} slots in use, {} free for changes; {} commits",
                percent(f.slots_used, f.slots),
                f.slots,
                f.slots_left,
                f.commits
            );
            if f.worm > 0 {
                let _ = writeln!(
                    t,
                    "worm      {}% of {} blocks; {} dumps; epoch {}",
                    percent(f.next, f.worm),
                    f.worm,
                    f.dumps,
                    f.epoch
                );
            }
            let _ = writeln!(
                t,
                "live      {} blocks that no dump has, {} that none will get",
                f.live, f.scratch
            );
            if f.bad_slots + f.mended > 0 {
                let _ = writeln!(
                    t,
                    "damage    {} blocks of the cache device, {} of the WORM repaired from another \
                     device",
                    f.bad_slots, f.mended
                );
            }
            if let Some(why) = &f.refused {
                let _ = writeln!(t, "refused   {why}");
            }
            let (rates, clients) = (host.rates.borrow().list(), who.len());
            Ok(Counts { text: t, volume: f, rates, clients, requests, read, written })
        })
    }
}
