//! First-in first-out scheduler: order of arrival. It is the baseline for measurements.

use std::collections::VecDeque;

use super::{Algorithm, Kind, Knob, Knobs, Request, Step};

const KNOBS: &[Knob] = &[Knob {
    name: "queue_depth",
    min: 0,
    default: 0,
    max: 1024,
    doc: "requests in the disk at once, 0: any number",
}];
const QUEUE_DEPTH: usize = 0;

pub(super) const KIND: Kind = Kind {
    name: "fifo",
    doc: "in order of arrival",
    knobs: KNOBS,
    shares: false,
    make: |knobs| Box::new(Fifo { knobs, queue: VecDeque::new(), in_flight: 0 }),
};

struct Fifo {
    knobs: Knobs,
    queue: VecDeque<u32>,
    in_flight: u32,
}

impl Algorithm for Fifo {
    fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    fn knobs_mut(&mut self) -> &mut Knobs {
        &mut self.knobs
    }

    fn adopt(&mut self, in_flight: u32) {
        self.in_flight = in_flight;
    }

    fn arrived(&mut self, request: Request, _: u64) {
        self.queue.push_back(request.id);
    }

    fn next(&mut self, _: u64, _: bool) -> Step {
        let depth = self.knobs.get(QUEUE_DEPTH);
        if depth != 0 && u64::from(self.in_flight) >= depth {
            return Step::Nothing;
        }
        match self.queue.pop_front() {
            Some(id) => {
                self.in_flight += 1;
                Step::Start(id)
            }
            None => Step::Nothing,
        }
    }

    fn ended(&mut self, _: &Request, _: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    fn is_transparent(&self) -> bool {
        self.knobs.get(QUEUE_DEPTH) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{request, started};

    #[test]
    fn requests_are_served_in_order_up_to_the_queue_depth() {
        let (_, mut fifo) = super::super::make("fifo").expect("it is there");
        assert!(fifo.is_transparent());
        fifo.knobs_mut().set("queue_depth", 2).expect("a depth");
        for id in 0..5 {
            fifo.arrived(request(id, id as u16, u64::from(99 - id) << 20, 4096), 0);
        }
        assert_eq!(started(&mut *fifo, 0), [0, 1]);
        fifo.ended(&request(1, 1, 0, 4096), 1);
        assert_eq!(started(&mut *fifo, 1), [2]);
        assert!(!fifo.is_transparent());
    }
}
