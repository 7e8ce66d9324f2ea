//! Days and times of day, where the machine is.

use jiff::civil::Time;
use jiff::{Timestamp, Zoned, tz::TimeZone};

/// Two automatic dumps are at least so far apart, ns: an hour and forty minutes.
const APART_NS: u64 = 6_000_000_000_000;
/// Longest sleep of the clock of dumps: a clock that is put right is seen so soon, ns.
const CLOCK_NS: u64 = 60_000_000_000;

/// A time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOfDay(Time);

impl TimeOfDay {
    /// `05:00`.
    pub fn parse(text: &str) -> Option<TimeOfDay> {
        let (hour, minute) = text.split_once(':')?;
        let two = |t: &str| t.len() == 2 && t.bytes().all(|b| b.is_ascii_digit());
        if !two(hour) || !two(minute) {
            return None;
        }
        Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok().map(TimeOfDay)
    }

    /// The first moment after `ns` (since 1970) at which it is that time; where a clock is put
    /// forward over it, the moment at which it is past.
    pub fn after(self, ns: u64, zone: &TimeZone) -> u64 {
        let now = zoned(ns, zone);
        let mut day = now.date();
        for _ in 0..3 {
            if let Ok(then) = day.to_datetime(self.0).to_zoned(zone.clone())
                && then > now
            {
                return u64::try_from(then.timestamp().as_nanosecond()).unwrap_or(u64::MAX);
            }
            let Ok(next) = day.tomorrow() else { break };
            day = next;
        }
        u64::MAX
    }
}

/// The next action of the clock of dumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpAction {
    /// It looks again after so many ns.
    Sleep(u64),
    /// It takes a dump.
    Dump,
    /// A dump was due, so soon after another that there is none.
    Skip,
}

/// A dump a day, also when the clock is set.
pub struct Daily {
    at: TimeOfDay,
    due: u64,
}

impl Daily {
    /// From `now` (ns since 1970) on.
    pub fn new(at: TimeOfDay, now: u64, zone: &TimeZone) -> Daily {
        Daily { at, due: at.after(now, zone) }
    }

    /// When the next one is taken.
    pub fn due(&self) -> u64 {
        self.due
    }

    /// At `now`, when the last dump of all was taken at `last`.
    pub fn next_action(&mut self, now: u64, last: u64, zone: &TimeZone) -> DumpAction {
        if now < self.due {
            // A clock that was put back does not put off the dump by more than a day.
            self.due = self.due.min(self.at.after(now, zone));
            return DumpAction::Sleep((self.due - now).clamp(1, CLOCK_NS));
        }
        self.due = self.at.after(now, zone);
        // A dump of a later day was taken by a clock that was wrong.
        let apart = now.checked_sub(last).is_none_or(|ns| ns >= APART_NS);
        if apart { DumpAction::Dump } else { DumpAction::Skip }
    }
}

fn zoned(ns: u64, zone: &TimeZone) -> Zoned {
    let at = Timestamp::from_nanosecond(i128::from(ns)).unwrap_or(Timestamp::UNIX_EPOCH);
    at.to_zoned(zone.clone())
}

/// The day as one number: 20261121.
pub fn day(ns: u64, zone: &TimeZone) -> u32 {
    let date = zoned(ns, zone).date();
    let number = |n: i64| u32::try_from(n).unwrap_or(0);
    number(date.year().into()) * 10_000
        + number(date.month().into()) * 100
        + number(date.day().into())
}

/// `2026-11-21 05:00:03`.
pub fn text(ns: u64, zone: &TimeZone) -> String {
    zoned(ns, zone).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Where the machine is.
pub fn zone() -> TimeZone {
    TimeZone::system()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::clock::S;

    #[test]
    fn the_next_five_oclock_is_today_or_tomorrow() {
        let utc = TimeZone::UTC;
        let at = TimeOfDay::parse("05:00").unwrap();
        // 2026-11-21 04:59:59 and 05:00:00.
        let five = 1_795_237_200 * S;
        assert_eq!(text(five, &utc), "2026-11-21 05:00:00");
        assert_eq!(at.after(five - S, &utc), five);
        assert_eq!(at.after(five, &utc), five + 86_400 * S);
        assert_eq!((day(five, &utc), day(five + 86_400 * S, &utc)), (20_261_121, 20_261_122));
        for wrong in ["5:00", "24:00", "05:60", "05", "", "05:0x"] {
            assert_eq!(TimeOfDay::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn dumps_are_taken_once_a_day_despite_clock_changes() {
        let utc = TimeZone::UTC;
        // 2026-11-20 12:00.
        let (noon, day) = (1_795_176_000 * S, 86_400 * S);
        let mut daily = Daily::new(TimeOfDay::parse("05:00").unwrap(), noon, &utc);
        let (mut now, mut last) = (noon, 0);
        // Until a moment; when dumps were taken.
        let mut until = |end: u64, now: &mut u64, last: &mut u64| -> Vec<String> {
            let mut taken = Vec::new();
            while *now < end {
                match daily.next_action(*now, *last, &utc) {
                    DumpAction::Sleep(ns) => *now += ns,
                    DumpAction::Dump => {
                        *last = *now;
                        taken.push(text(*now, &utc));
                    }
                    DumpAction::Skip => {}
                }
                assert!(daily.due() > *now - CLOCK_NS && daily.due() <= *now + day);
            }
            taken
        };
        let three = until(noon + 3 * day, &mut now, &mut last);
        assert_eq!(three, ["2026-11-21 05:00:00", "2026-11-22 05:00:00", "2026-11-23 05:00:00"]);
        // One by hand at four: none at five.
        last = noon + 3 * day + 16 * 3600 * S;
        assert_eq!(until(noon + 4 * day, &mut now, &mut last), [""; 0]);
        // The clock is put back by a week, to noon: a dump of a later day holds nothing up.
        now = noon - 3 * day;
        assert_eq!(until(now + day, &mut now, &mut last), ["2026-11-18 05:00:00"]);
        // It is put ahead by a month: at once.
        now = noon + 30 * day;
        let end = now + day;
        let taken = until(end, &mut now, &mut last);
        assert_eq!(taken, ["2026-12-20 12:00:00", "2026-12-21 05:00:00"]);
    }

    #[test]
    fn dump_time_skipped_by_summer_time_moves_one_hour_later() {
        // Summer time begins on 2026-03-29: 02:30 is not there.
        let Ok(zone) = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3") else { panic!("a zone") };
        let at = TimeOfDay::parse("02:30").unwrap();
        let midnight = 1_774_738_800 * S;
        assert_eq!(text(midnight, &zone), "2026-03-29 00:00:00");
        assert_eq!(text(at.after(midnight, &zone), &zone), "2026-03-29 03:30:00");
    }
}
