//! A queue in the order of the disk: upwards from the head, then again from the lowest offset.

use super::Request;

/// After this number of requests by offset, the oldest one is next, wherever it is. A stream that
/// moves ahead of the head therefore cannot starve the requests behind it.
const BATCH: u32 = 32;

/// See the module. Grows to the most that ever waited, and stays that large.
#[derive(Default)]
pub(super) struct Elevator {
    /// By offset, then by arrival.
    sorted: Vec<Request>,
    head: u64,
    by_place: u32,
}

impl Elevator {
    pub(super) fn push(&mut self, request: Request) {
        let key = (request.offset, request.serial);
        let at = self.sorted.partition_point(|r| (r.offset, r.serial) < key);
        self.sorted.insert(at, request);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub(super) fn head_at(&mut self, head: u64) {
        self.head = head;
    }

    /// The one that waits longest.
    pub(super) fn oldest(&self) -> Option<&Request> {
        self.sorted.iter().min_by_key(|r| r.serial)
    }

    pub(super) fn pop(&mut self) -> Option<Request> {
        self.by_place += 1;
        if self.by_place > BATCH {
            return self.pop_oldest();
        }
        let at = self.sorted.partition_point(|r| r.offset < self.head);
        self.take(if at < self.sorted.len() { at } else { 0 })
    }

    pub(super) fn pop_oldest(&mut self) -> Option<Request> {
        self.by_place = 0;
        let oldest = self.oldest()?.serial;
        let at = self.sorted.iter().position(|r| r.serial == oldest)?;
        self.take(at)
    }

    /// Whether one of a client waits.
    pub(super) fn has(&self, client: u16) -> bool {
        self.sorted.iter().any(|r| r.client == client)
    }

    fn take(&mut self, at: usize) -> Option<Request> {
        if at >= self.sorted.len() {
            return None;
        }
        let request = self.sorted.remove(at);
        self.head = request.end();
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::request;
    use super::*;

    #[test]
    fn requests_are_served_upwards_then_from_the_lowest() {
        let mut e = Elevator::default();
        for (id, place) in [50, 10, 90, 30].into_iter().enumerate() {
            e.push(request(id as u32, 0, place << 20, 4096));
        }
        e.head_at(40 << 20);
        let order: Vec<u64> = std::iter::from_fn(|| e.pop()).map(|r| r.offset >> 20).collect();
        assert_eq!(order, [50, 90, 10, 30]);
    }

    #[test]
    fn request_below_a_stream_is_served_after_one_batch() {
        let mut e = Elevator::default();
        e.push(request(0, 0, 0, 4096));
        e.head_at(1 << 30);
        for n in 1..=u64::from(BATCH) + 1 {
            e.push(request(n as u32, 0, (1 << 30) + n * 4096, 4096));
            if e.pop().is_some_and(|r| r.id == 0) {
                return;
            }
        }
        panic!("it waits still");
    }
}
