//! Properties of DELETE over a provider: its granules, and the limits of one request. Each class
//! derives them from the providers below. They bind no client: the dispatcher cuts a request that
//! is too large.

use bio::Attr;

use super::{Event, GeomId, ProviderId, Topology};

/// The attribute name in [`Geom::attr_changed`] when DELETE has changed below. A layer was inserted
/// or removed, or a member was added or lost, so the promises, the granules and the limits may be
/// different. The layer that shares the disk out ([`Topology::shares`]) may be another
/// too.
///
/// [`Geom::attr_changed`]: crate::Geom::attr_changed
pub const DELETES: &str = "ASHLAR::deletes";

/// Limits and best granules of one DELETE of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deletes {
    /// Bytes that are given up as a whole; a multiple of the sector size, never zero.
    pub granule: u64,
    /// Where the first granule begins, less than one from the start; `None`: not the same
    /// everywhere.
    pub offset: Option<u64>,
    /// Ranges that one DELETE may name and stay one all the way down; at least 1.
    pub ranges: u32,
    /// Bytes of one of several ranges; zero: any number. Longer ones count as several.
    pub range_bytes: u64,
    /// Bytes that one DELETE may name and stay one; zero: any number.
    pub max_bytes: u64,
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The largest common granule, bytes: two granules with a larger common multiple get the larger of
/// the two.
const GRANULE_MAX: u64 = 1 << 40;

fn lcm(a: u64, b: u64) -> u64 {
    let (a, b) = (a.max(1), b.max(1));
    (a / gcd(a, b)).checked_mul(b).filter(|n| *n <= GRANULE_MAX).unwrap_or(a.max(b))
}

fn least(a: u64, b: u64) -> u64 {
    match (a, b) {
        (0, other) | (other, 0) => other,
        (a, b) => a.min(b),
    }
}

impl Deletes {
    /// Granules of `granule` bytes from the first byte on, any number of ranges and bytes.
    pub fn of(granule: u64) -> Deletes {
        let granule = granule.max(1);
        let (ranges, range_bytes, max_bytes) = (u32::MAX, 0, 0);
        Deletes { granule, offset: Some(0), ranges, range_bytes, max_bytes }
    }

    /// As seen by something that begins `by` bytes further on.
    pub fn moved(self, by: u64) -> Deletes {
        let (granule, by) = (self.granule.max(1), by % self.granule.max(1));
        let offset = self.offset.map(|offset| (offset % granule + granule - by) % granule);
        Deletes { granule, offset, ..self }
    }

    /// As seen by something of which it is a part that begins `by` bytes behind the start.
    pub fn placed(self, by: u64) -> Deletes {
        let granule = self.granule.max(1);
        let offset = self.offset.map(|offset| (offset % granule + by % granule) % granule);
        Deletes { granule, offset, ..self }
    }

    /// Over strips of `strip` bytes, `count` to a row, of members that are all like this one.
    pub fn striped(self, strip: u64, count: u64) -> Deletes {
        let (granule, strip) = (self.granule.max(1), strip.max(1));
        let (granule, offset) = if strip.is_multiple_of(granule) {
            // A strip is whole granules, where they begin with the member: else those at the edges
            // of strips are in two places.
            (granule, self.offset.filter(|offset| offset.is_multiple_of(granule)).map(|_| 0))
        } else {
            // A granule spans several strips of its member, so as many rows.
            let rows = lcm(granule, strip);
            let fits = rows == granule && self.offset.is_some_and(|o| o.is_multiple_of(strip));
            let offset = self.offset.filter(|_| fits).map(|offset| offset.saturating_mul(count));
            (rows.saturating_mul(count.max(1)), offset)
        };
        Deletes { granule, offset, ..self }
    }

    /// The properties over this and another one, both of which receive the same requests.
    pub fn with(self, other: Deletes) -> Deletes {
        /// Places tried for a common first granule.
        const TRIED: u64 = 1 << 16;
        let (one, two) = (self.granule.max(1), other.granule.max(1));
        let granule = lcm(one, two);
        let offset = self.offset.zip(other.offset).and_then(|(a, b)| {
            let mut places = (0..(granule / one).min(TRIED)).map(|nth| a % one + nth * one);
            places.find(|at| at % two == b % two)
        });
        Deletes {
            granule,
            offset: offset.filter(|_| granule.is_multiple_of(one) && granule.is_multiple_of(two)),
            ranges: self.ranges.min(other.ranges),
            range_bytes: least(self.range_bytes, other.range_bytes),
            max_bytes: least(self.max_bytes, other.max_bytes),
        }
    }
}

impl Topology {
    /// The properties of DELETE over a provider.
    pub fn deletes(&self, p: ProviderId) -> Deletes {
        let Some(own) = self.providers.get(p) else { return Deletes::of(1) };
        let ops = self.geoms.get(own.geom).and_then(|g| g.ops.as_ref());
        let found = match ops {
            Some(ops) if !self.consumers_of(own.geom).is_empty() => ops.deletes(self, own.geom, p),
            _ => self.deletes_of_disk(p),
        };
        let sector = u64::from(own.limits.sector_bytes).max(1);
        let fits = found.granule.is_multiple_of(sector)
            && found.offset.is_none_or(|offset| offset.is_multiple_of(sector));
        let found = if fits { found } else { Deletes { offset: None, ..found } };
        Deletes {
            granule: lcm(found.granule, sector),
            ranges: found.ranges.min(own.layer.delete_ranges()).max(1),
            max_bytes: least(found.max_bytes, own.limits.delete_max_bytes),
            ..found
        }
    }

    /// Notifies all geoms above a provider, however high, that DELETE, or the layer that shares the
    /// disk out, may have changed.
    pub fn below_changed(&mut self, p: ProviderId) {
        let (mut next, mut seen) = (vec![p], Vec::new());
        while let Some(p) = next.pop() {
            if seen.contains(&p) {
                continue;
            }
            seen.push(p);
            self.post(Event::Attr(p, DELETES));
            let above = self.providers.get(p).map_or(&[][..], |p| &p.consumers);
            let geoms = above.iter().filter_map(|c| self.consumers.get(*c)).map(|c| c.geom);
            next.extend(geoms.flat_map(|g| self.providers_of(g)).copied());
        }
    }

    /// A geom has one more consumer, or one less: its providers may have other properties.
    pub(super) fn consumers_changed(&mut self, geom: GeomId) {
        for p in self.providers_of(geom).to_vec() {
            self.below_changed(p);
        }
    }

    /// True when a layer below a provider gives each client its part, on every path of its
    /// requests.
    pub fn shares(&self, p: ProviderId) -> bool {
        let Some(geom) = self.providers.get(p).map(|p| p.geom) else { return false };
        if self
            .geoms
            .get(geom)
            .and_then(|g| g.ops.as_ref())
            .is_some_and(|ops| ops.schedules_clients())
        {
            return true;
        }
        let below: Vec<_> = self.consumers_of(geom).iter().filter_map(|c| self.below(*c)).collect();
        !below.is_empty() && below.into_iter().all(|p| self.shares(p))
    }

    /// The same over the first provider below `geom`, or over nothing.
    pub fn deletes_below(&self, geom: GeomId) -> Deletes {
        let first = self.consumers_of(geom).first().and_then(|c| self.below(*c));
        first.map_or(Deletes::of(1), |p| self.deletes(p))
    }

    /// As the disk reports them; else its stripes are taken for its granules.
    fn deletes_of_disk(&self, p: ProviderId) -> Deletes {
        let Some(own) = self.providers.get(p) else { return Deletes::of(1) };
        let attribute = |name: &str| own.attrs.iter().find(|(n, _)| *n == name).map(|(_, v)| v);
        let sector = u64::from(own.limits.sector_bytes).max(1);
        let usual = match own.stripe_bytes {
            0 => sector,
            stripe if stripe.is_multiple_of(sector) => stripe,
            _ => sector,
        };
        match (attribute("DISK::delete_granule"), attribute("DISK::delete_offset")) {
            (Some(Attr::Int(granule)), offset) => {
                let offset = if let Some(Attr::Int(offset)) = offset { *offset } else { 0 };
                let all = Deletes::of((*granule).max(sector));
                let range_bytes = match attribute("DISK::delete_range") {
                    Some(Attr::Int(bytes)) => *bytes,
                    _ => 0,
                };
                Deletes { offset: Some(offset % all.granule), range_bytes, ..all }
            }
            _ => Deletes::of(usual).moved(own.stripe_offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(granule: u64, offset: u64) -> Deletes {
        Deletes { offset: Some(offset), ..Deletes::of(granule) }
    }

    /// Granules of a whole, against the bytes of its members: `place(byte)` is member and byte.
    fn agrees(joint: Deletes, members: &[Deletes], size: u64, place: impl Fn(u64) -> (usize, u64)) {
        let Some(offset) = joint.offset else { return };
        let mut start = offset;
        while start + joint.granule <= size {
            // The bytes of one granule of the whole are whole granules on every member.
            let mut seen = vec![Vec::new(); members.len()];
            for byte in start..start + joint.granule {
                let (member, local) = place(byte);
                seen[member].push(local);
            }
            for (member, mut bytes) in seen.into_iter().enumerate() {
                let below = members[member];
                bytes.sort_unstable();
                for run in bytes.chunk_by(|a, b| a + 1 == *b) {
                    let first = run[0] + below.granule - below.offset.unwrap_or(0);
                    assert!(first.is_multiple_of(below.granule), "{joint:?} at {start}: {run:?}");
                    assert!((run.len() as u64).is_multiple_of(below.granule), "{joint:?} {run:?}");
                }
            }
            start += joint.granule;
        }
    }

    #[test]
    fn partition_inside_a_granule_keeps_the_granule_offset() {
        for granule in 1..9u64 {
            for offset in 0..granule {
                for by in 0..20 {
                    let below = at(granule, offset);
                    let part = below.moved(by);
                    assert!(part.offset.is_some_and(|o| o < granule));
                    agrees(part, &[below], 60, |byte| (0, byte + by));
                    assert_eq!(part.placed(by), at(granule, offset), "and back");
                }
            }
        }
    }

    #[test]
    fn granules_of_a_stripe_are_whole_granules_of_its_members() {
        let mut known = 0;
        for granule in 1..9u64 {
            for offset in 0..granule {
                for (strip, count) in [(1, 2), (2, 3), (3, 2), (4, 2), (4, 3), (6, 2), (8, 3)] {
                    let member = at(granule, offset);
                    let joint = member.striped(strip, count);
                    known += u32::from(joint.offset.is_some());
                    let place = |byte: u64| {
                        let (nth, within) = (byte / strip, byte % strip);
                        ((nth % count) as usize, nth / count * strip + within)
                    };
                    agrees(joint, &vec![member; count as usize], 300, place);
                }
            }
        }
        assert!(known > 40, "{known} of them are known");
    }

    #[test]
    fn combined_delete_limits_fit_all_members_or_have_no_offset() {
        for (a, b) in [(4, 6), (4, 8), (3, 5), (1, 7)] {
            for x in 0..a {
                for y in 0..b {
                    let both = [at(a, x), at(b, y)];
                    let joint = both[0].with(both[1]);
                    let fits = (0..a * b).any(|p| p % a == x && p % b == y);
                    assert_eq!(joint.offset.is_some(), fits, "{both:?}: {joint:?}");
                    for member in both {
                        agrees(joint, &[member], 200, |byte| (0, byte));
                    }
                }
            }
        }
        let few = Deletes { ranges: 64, max_bytes: 100, ..Deletes::of(1) };
        let more = Deletes { ranges: 256, max_bytes: 0, ..Deletes::of(1) };
        assert_eq!((few.with(more).ranges, few.with(more).max_bytes), (64, 100));
    }
}
