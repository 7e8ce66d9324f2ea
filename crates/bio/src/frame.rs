//! The stack of layers a Bio passed through, inline in the Bio.

/// Deepest graph a Bio can cross. An attach that would make a geom's rank larger is refused, so
/// no Bio meets a full stack; one that does ends with `DeadLk`.
pub const DEPTH_MAX: usize = 24;

/// One layer on the way down, remembered for the way up.
#[derive(Clone, Copy, Default, Debug)]
pub struct Frame {
    /// Consumer slot through which the layer was entered.
    pub edge: u32,
    /// Provider slot of the layer.
    pub node: u32,
    /// The layer's own word, handed back to its `done`.
    pub word: u64,
    /// When it was entered, in ns of the core's clock: known of frames that are counted in.
    pub start_ns: u64,
}

/// At most [`DEPTH_MAX`] frames, no heap.
///
/// Invariant F1: the `counted` oldest frames are counted in at their layers, the others are not.
pub struct Frames {
    len: u8,
    counted: u8,
    slots: [Frame; DEPTH_MAX],
}

impl Frames {
    /// No frames.
    pub const fn new() -> Frames {
        const EMPTY: Frame = Frame { edge: 0, node: 0, word: 0, start_ns: 0 };
        Frames { len: 0, counted: 0, slots: [EMPTY; DEPTH_MAX] }
    }

    /// False, and nothing changed, when the stack is full.
    #[inline]
    #[must_use]
    pub fn push(&mut self, frame: Frame) -> bool {
        match self.slots.get_mut(self.len as usize) {
            Some(slot) => {
                *slot = frame;
                self.len += 1;
                true
            }
            None => false,
        }
    }

    /// Takes the newest frame off; when it was entered, if it is counted in.
    #[inline]
    pub fn pop(&mut self) -> Option<u64> {
        let at = self.len.checked_sub(1)?;
        self.len = at;
        if self.counted <= at {
            return None;
        }
        self.counted = at;
        self.slots.get(at as usize).map(|frame| frame.start_ns)
    }

    /// The newest frame.
    #[inline]
    pub fn top(&self) -> Option<Frame> {
        let at = self.len.checked_sub(1)?;
        self.slots.get(at as usize).copied()
    }

    /// The frames that are not counted in, oldest first: from now on they are.
    #[inline]
    pub fn count_in(&mut self) -> &mut [Frame] {
        let range = self.counted as usize..self.len as usize;
        self.counted = self.len;
        self.slots.get_mut(range).unwrap_or_default()
    }

    /// The newest frame, to be changed.
    #[inline]
    pub fn top_mut(&mut self) -> Option<&mut Frame> {
        let at = self.len.checked_sub(1)?;
        self.slots.get_mut(at as usize)
    }

    /// Frames on the stack, oldest first.
    pub fn as_slice(&self) -> &[Frame] {
        self.slots.get(..self.len as usize).unwrap_or(&[])
    }

    /// Forgets all frames.
    pub fn clear(&mut self) {
        self.len = 0;
        self.counted = 0;
    }
}

impl Default for Frames {
    fn default() -> Self {
        Frames::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_stack_refuses_a_frame_and_is_unchanged() {
        let mut f = Frames::new();
        for i in 0..DEPTH_MAX as u64 {
            assert!(f.push(Frame { word: i, ..Frame::default() }));
        }
        assert!(!f.push(Frame::default()));
        for i in (0..DEPTH_MAX as u64).rev() {
            assert_eq!(f.top().map(|x| x.word), Some(i));
            f.pop();
        }
        assert!(f.top().is_none());
    }

    #[test]
    fn oldest_frames_are_counted_in_once() {
        let mut f = Frames::new();
        let add = |f: &mut Frames, word| assert!(f.push(Frame { word, ..Frame::default() }));
        let count = |f: &mut Frames, at_ns| {
            let all = f.count_in().iter_mut().map(|f| (f.start_ns = at_ns, f.word).1);
            all.collect::<Vec<_>>()
        };
        add(&mut f, 1);
        add(&mut f, 2);
        assert_eq!(count(&mut f, 10), [1, 2]);
        add(&mut f, 3);
        assert_eq!(f.pop(), None, "it came later");
        assert_eq!(f.pop(), Some(10));
        add(&mut f, 4);
        add(&mut f, 5);
        assert_eq!(count(&mut f, 20), [4, 5], "in the place of one that was");
        assert_eq!((f.pop(), f.pop(), f.pop(), f.pop()), (Some(20), Some(20), Some(10), None));
        add(&mut f, 6);
        count(&mut f, 30);
        f.clear();
        add(&mut f, 7);
        assert_eq!(count(&mut f, 40), [7]);
    }
}
