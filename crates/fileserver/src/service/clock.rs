//! Days and times of day, where the machine is.

use jiff::civil::Time;
use jiff::{Timestamp, Zoned, tz::TimeZone};

/// Two automatic dumps are at least so far apart, ns: an hour and forty minutes.
pub const APART_NS: u64 = 6_000_000_000_000;

/// A time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At(Time);

impl At {
    /// `05:00`.
    pub fn parse(text: &str) -> Option<At> {
        let (hour, minute) = text.split_once(':')?;
        let two = |t: &str| t.len() == 2 && t.bytes().all(|b| b.is_ascii_digit());
        if !two(hour) || !two(minute) {
            return None;
        }
        Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok().map(At)
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

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_next_five_oclock_is_today_or_tomorrow() {
        let utc = TimeZone::UTC;
        let at = At::parse("05:00").unwrap();
        // 2026-11-21 04:59:59 and 05:00:00.
        let five = 1_795_237_200 * S;
        assert_eq!(text(five, &utc), "2026-11-21 05:00:00");
        assert_eq!(at.after(five - S, &utc), five);
        assert_eq!(at.after(five, &utc), five + 86_400 * S);
        assert_eq!((day(five, &utc), day(five + 86_400 * S, &utc)), (20_261_121, 20_261_122));
        for wrong in ["5:00", "24:00", "05:60", "05", "", "05:0x"] {
            assert_eq!(At::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_day_without_that_time_has_a_dump_all_the_same() {
        // Summer time begins on 2026-03-29: 02:30 is not there.
        let Ok(zone) = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3") else { panic!("a zone") };
        let at = At::parse("02:30").unwrap();
        let midnight = 1_774_738_800 * S;
        assert_eq!(text(midnight, &zone), "2026-03-29 00:00:00");
        assert_eq!(text(at.after(midnight, &zone), &zone), "2026-03-29 03:30:00");
    }
}
