//! The stack of layers a Bio went through, inline in the Bio.

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
    /// When it was entered, in ns of the core's clock.
    pub start_ns: u64,
}

/// At most [`DEPTH_MAX`] frames, no heap.
pub struct Frames {
    len: u8,
    slots: [Frame; DEPTH_MAX],
}

impl Frames {
    /// No frames.
    pub const fn new() -> Frames {
        const EMPTY: Frame = Frame { edge: 0, node: 0, word: 0, start_ns: 0 };
        Frames { len: 0, slots: [EMPTY; DEPTH_MAX] }
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

    /// The newest frame, taken off.
    #[inline]
    pub fn pop(&mut self) -> Option<Frame> {
        let at = self.len.checked_sub(1)?;
        self.len = at;
        self.slots.get(at as usize).copied()
    }

    /// Puts back a frame that was just popped.
    pub fn restore(&mut self, frame: Frame) {
        let kept = self.push(frame);
        debug_assert!(kept, "there was room for it a moment ago");
    }

    /// The newest frame.
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
    fn a_full_stack_refuses_and_stays_whole() {
        let mut f = Frames::new();
        for i in 0..DEPTH_MAX as u64 {
            assert!(f.push(Frame { word: i, ..Frame::default() }));
        }
        assert!(!f.push(Frame::default()));
        for i in (0..DEPTH_MAX as u64).rev() {
            assert_eq!(f.pop().map(|x| x.word), Some(i));
        }
        assert!(f.pop().is_none());
    }
}
