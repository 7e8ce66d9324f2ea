//! Value of a sample: a whole number, or a time in seconds.

use std::fmt::{self, Display};
use std::io::Write;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    /// A count, a size or a flag.
    Unsigned(u64),
    /// A timestamp, which may be before 1970.
    Signed(i64),
    /// Nanoseconds that are printed as seconds, without zeros at the end.
    Seconds(u64),
}

pub(super) fn seconds(ns: u64) -> Number {
    Number::Seconds(ns)
}

impl Number {
    /// Adds its text to `out`.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        // Most values are flags and counts of errors.
        if let Number::Unsigned(digit @ 0..=9) = self {
            out.push(b'0' + digit as u8);
            return;
        }
        // Writing to a Vec cannot fail.
        let _ = write!(out, "{self}");
    }

    /// The nearest floating-point number.
    pub(super) fn to_double(self) -> f64 {
        match self {
            Number::Unsigned(value) => value as f64,
            Number::Signed(value) => value as f64,
            // The quotient of a rounded number is not always the nearest one.
            Number::Seconds(_) => self.to_string().parse().unwrap_or(f64::NAN),
        }
    }
}

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = match self {
            Number::Unsigned(value) => return value.fmt(f),
            Number::Signed(value) => return value.fmt(f),
            Number::Seconds(ns) => ns,
        };
        let (whole, mut rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
        if rest == 0 {
            return whole.fmt(f);
        }
        let mut digits = 9;
        while rest.is_multiple_of(10) {
            rest /= 10;
            digits -= 1;
        }
        write!(f, "{whole}.{rest:0digits$}")
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Number {
        Number::Unsigned(u64::from(value))
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Number {
        Number::Unsigned(u64::from(value))
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Number {
        Number::Unsigned(value)
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Number {
        Number::Unsigned(value as u64)
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Number {
        Number::Signed(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(number: Number, text: &str) {
        let mut written = b"x ".to_vec();
        number.write(&mut written);
        assert_eq!(String::from_utf8(written).expect("text"), format!("x {text}"));
        assert_eq!(number.to_double(), text.parse::<f64>().expect("a number"));
    }

    #[test]
    fn seconds_are_exact_and_have_no_zeros_at_the_end() {
        for (ns, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (20, "0.00000002"),
            (1_200_000_000, "1.2"),
            (10_000_000_000, "10"),
            (100_010_000_000, "100.01"),
            (9_007_199_254_740_993, "9007199.254740993"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            check(seconds(ns), text);
        }
    }

    #[test]
    fn whole_numbers_are_written_with_all_digits() {
        for value in [0, 1, 9, 10, 12_345, u64::MAX] {
            check(value.into(), &value.to_string());
        }
        for value in [i64::MIN, -5, 0, 9, 1_800_000_000, i64::MAX] {
            check(value.into(), &value.to_string());
        }
        check(true.into(), "1");
        check(false.into(), "0");
        check(u32::MAX.into(), "4294967295");
        check(7_usize.into(), "7");
    }
}
