//! The grammar of config strings.

use super::SyntaxError;
use super::device::{Device, Disk};

/// Devices inside devices.
const DEPTH_MAX: usize = 32;
/// Devices that an iterator makes, and members of a list.
const MEMBERS_MAX: usize = 4096;

pub(super) struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// Inside a list or a cached WORM, where a further one makes no sense.
    nested: bool,
}

/// Values of a number that may be an iterator, `<0-3>`: up or down.
enum Values {
    Single(u32),
    Range(u32, u32),
}

impl Values {
    fn iter(&self) -> Vec<u32> {
        match *self {
            Values::Single(n) => vec![n],
            Values::Range(a, b) if a <= b => (a..=b).collect(),
            Values::Range(a, b) => (b..=a).rev().collect(),
        }
    }
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Parser<'a> {
        Parser { text, at: 0, depth: 0, nested: false }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn syntax_error<T>(&self, why: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError { at: self.at, reason: why.into() })
    }

    fn accept(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    pub fn end(&self) -> Result<(), SyntaxError> {
        match self.rest() {
            "" => Ok(()),
            rest => self.syntax_error(format!("{rest:?} follows a complete device")),
        }
    }

    /// Exactly one device: an iterator outside of a list makes several.
    pub fn device(&mut self) -> Result<Device, SyntaxError> {
        let at = self.at;
        let mut some = self.devices()?;
        match (some.pop(), some.is_empty()) {
            (Some(d), true) => Ok(d),
            _ => Err(SyntaxError {
                at,
                reason: "several devices where one is wanted: use ( ), [ ] or { }".into(),
            }),
        }
    }

    /// A device, or as many as its iterator has values.
    fn devices(&mut self) -> Result<Vec<Device>, SyntaxError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.syntax_error("devices are nested too deep");
        }
        let out = self.by_letter();
        self.depth -= 1;
        out
    }

    fn by_letter(&mut self) -> Result<Vec<Device>, SyntaxError> {
        let start = self.at;
        let Some(c) = self.peek() else { return self.syntax_error("a device is missing") };
        if let '/' | '"' | '\'' = c {
            return Ok(vec![Device::Path(self.path()?)]);
        }
        self.at += c.len_utf8();
        let one = |d| Ok(vec![d]);
        match c {
            '(' => one(collapse(self.list(')')?, Device::Cat)),
            '[' => one(collapse(self.list(']')?, Device::Interleave)),
            '{' => one(collapse(self.list('}')?, Device::Mirror)),
            'f' => one(Device::Once(Box::new(self.device()?))),
            'x' => one(Device::Swapped(Box::new(self.device()?))),
            'n' => one(Device::None),
            'o' | 'c' if self.nested => {
                self.at = start;
                self.syntax_error("a cached WORM or its dumps cannot be part of another device")
            }
            'o' => one(Device::Dumps),
            'c' => {
                self.nested = true;
                let (cache, worm) = (self.device()?, self.device()?);
                self.nested = false;
                one(Device::Cached(Box::new(cache), Box::new(worm)))
            }
            'p' => one(self.part()?),
            'j' => one(self.jukebox()?),
            'r' => Ok(self.values()?.iter().into_iter().map(Device::Side).collect()),
            'l' => Ok(self.values()?.iter().into_iter().map(Device::Labelled).collect()),
            'w' if matches!(self.peek(), Some('/' | '"' | '\'')) => {
                Ok(vec![Device::Path(self.path()?)])
            }
            'w' => self.disk(Disk::Wren, 3),
            'h' => self.disk(Disk::Ide, 2),
            'm' => self.disk(Disk::Marvell, 2),
            'a' => self.disk(Disk::Ahci, 2),
            'e' => self.aoe(),
            _ => {
                self.at = start;
                self.syntax_error(format!("{c:?} begins no device"))
            }
        }
    }

    fn list(&mut self, close: char) -> Result<Vec<Device>, SyntaxError> {
        let (start, outer) = (self.at, std::mem::replace(&mut self.nested, true));
        let mut out = Vec::new();
        while !self.accept(close) {
            if self.rest().is_empty() {
                return Err(SyntaxError { at: start, reason: format!("{close:?} is missing") });
            }
            out.extend(self.devices()?);
            if out.len() > MEMBERS_MAX {
                return self.syntax_error(format!("more than {MEMBERS_MAX} members"));
            }
        }
        self.nested = outer;
        if out.is_empty() { self.syntax_error("a list without members") } else { Ok(out) }
    }

    fn part(&mut self) -> Result<Device, SyntaxError> {
        let of = Box::new(self.device()?);
        if let Some('"' | '\'') = self.peek() {
            return Ok(Device::Named(of, self.path()?));
        }
        let at = self.at;
        let first = self.number()?;
        if !self.accept('.') {
            return self
                .syntax_error("a part is BASE.SIZE in percent, FIRST.END in blocks, or \"NAME\"");
        }
        let second = self.number()?;
        let percent = first <= 100 && second <= 100;
        let why = match (percent, second) {
            (_, 0) => "a part of no size",
            (true, _) if first + second > 100 => "a part that ends behind 100 percent",
            (false, _) if second <= first => "a part that ends before it begins",
            _ => return Ok(Device::Part(of, first, second)),
        };
        Err(SyntaxError { at, reason: why.into() })
    }

    fn jukebox(&mut self) -> Result<Device, SyntaxError> {
        let mut group = |what: &str| {
            if !self.accept('(') {
                return self.syntax_error(format!("{what} in ( ) are missing"));
            }
            self.list(')')
        };
        Ok(Device::Jukebox(group("robot and drives")?, group("sides")?))
    }

    fn disk(&mut self, kind: Disk, most: usize) -> Result<Vec<Device>, SyntaxError> {
        let at = self.at;
        let mut numbers = vec![self.values()?];
        while numbers.len() < most && self.accept('.') {
            numbers.push(self.values()?);
        }
        let all = self.product(at, &numbers)?;
        Ok(all.into_iter().map(|n| Device::Disk(kind, n)).collect())
    }

    fn aoe(&mut self) -> Result<Vec<Device>, SyntaxError> {
        let at = self.at;
        let shelf = self.values()?;
        if !self.accept('.') {
            return self.syntax_error("an AoE target is eSHELF.SLOT");
        }
        let slot = self.values()?;
        let all = self.product(at, &[shelf, slot])?;
        Ok(all.into_iter().map(|n| Device::Aoe(n[0], n[1])).collect())
    }

    /// The numbers, once for each value of the one that is an iterator.
    fn product(&self, at: usize, numbers: &[Values]) -> Result<Vec<Vec<u32>>, SyntaxError> {
        if numbers.iter().filter(|v| matches!(v, Values::Range(..))).count() > 1 {
            return Err(SyntaxError {
                at,
                reason: "one number of a device may be an iterator".into(),
            });
        }
        let mut out = vec![Vec::new()];
        for v in numbers {
            let values = v.iter();
            let longer =
                |n: &Vec<u32>| values.iter().map(|v| [&n[..], &[*v]].concat()).collect::<Vec<_>>();
            out = out.iter().flat_map(longer).collect();
        }
        Ok(out)
    }

    fn values(&mut self) -> Result<Values, SyntaxError> {
        if !self.accept('<') {
            return Ok(Values::Single(self.small()?));
        }
        let at = self.at;
        let first = self.small()?;
        if !self.accept('-') {
            return self.syntax_error("an iterator is <FIRST-LAST>");
        }
        let last = self.small()?;
        if !self.accept('>') {
            return self.syntax_error("'>' is missing");
        }
        if first.abs_diff(last) as usize >= MEMBERS_MAX {
            return Err(SyntaxError {
                at,
                reason: format!("an iterator of more than {MEMBERS_MAX} values"),
            });
        }
        Ok(Values::Range(first, last))
    }

    fn small(&mut self) -> Result<u32, SyntaxError> {
        let at = self.at;
        u32::try_from(self.number()?)
            .map_err(|_| SyntaxError { at, reason: "a number beyond any device".into() })
    }

    fn number(&mut self) -> Result<u64, SyntaxError> {
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        match rest[..len].parse() {
            Ok(n) => {
                self.at += len;
                Ok(n)
            }
            Err(_) if len == 0 => self.syntax_error("a number is missing"),
            Err(_) => self.syntax_error("a number beyond any device"),
        }
    }

    /// In quotes, or from a slash to the end of the list.
    fn path(&mut self) -> Result<String, SyntaxError> {
        let (start, rest) = (self.at, self.rest());
        let (name, len) = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let Some(len) = rest[1..].find(quote) else {
                    return self.syntax_error(format!("the {quote} that ends a name is missing"));
                };
                (&rest[1..=len], len + 2)
            }
            _ => {
                let len = rest.find([')', ']', '}']).unwrap_or(rest.len());
                (&rest[..len], len)
            }
        };
        if name.is_empty() || name.chars().any(char::is_control) {
            return self.syntax_error("an empty name, or one with control characters");
        }
        if name.contains('"') && name.contains('\'') {
            return self.syntax_error("a name with quotes of both kinds");
        }
        self.at = start + len;
        Ok(name.to_owned())
    }
}

fn collapse(mut members: Vec<Device>, list: fn(Vec<Device>) -> Device) -> Device {
    match (members.pop(), members.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            members.extend(last);
            list(members)
        }
    }
}
