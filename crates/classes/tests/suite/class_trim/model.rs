//! Model of the values that each sector may hold: now, and after a power cut.

use super::late::SECTOR;

/// The content of a sector after a step: a value, or anything.
type Left = Option<u64>;

#[derive(Clone, Default)]
struct Cell {
    /// The oldest content that the medium may have; any of the later steps may have arrived.
    base: Left,
    /// Later steps: their numbers and the content after each.
    later: Vec<(u64, Left)>,
    /// The newest step that has ended.
    ended: u64,
}

pub struct Model {
    cells: Vec<Cell>,
    steps: u64,
}

/// A flush under way: for each sector the newest step that had ended.
pub struct Mark(Vec<u64>);

pub fn bytes_of(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(SECTOR as usize / 8)
}

impl Model {
    /// Of a disk with any content.
    pub fn new(sectors: u64) -> Model {
        Model { cells: vec![Cell::default(); sectors as usize], steps: 0 }
    }

    /// A step begins: a write of a value, or a delete.
    pub fn begin(&mut self, first: u64, count: u64, left: Left) -> u64 {
        self.steps += 1;
        for s in first..first + count {
            self.cells[s as usize].later.push((self.steps, left));
        }
        self.steps
    }

    pub fn end(&mut self, first: u64, count: u64, step: u64) {
        (first..first + count).for_each(|s| self.cells[s as usize].ended = step);
    }

    pub fn flush(&self) -> Mark {
        Mark(self.cells.iter().map(|c| c.ended).collect())
    }

    pub fn flushed(&mut self, mark: &Mark) {
        for (cell, upto) in self.cells.iter_mut().zip(&mark.0) {
            while cell.later.first().is_some_and(|(step, _)| step <= upto) {
                cell.base = cell.later.remove(0).1;
            }
        }
    }

    /// Checks the data of a read when no step of these sectors is under way.
    pub fn reads(&self, first: u64, bytes: &[u8]) -> Result<(), String> {
        for (s, found) in (first..).zip(bytes.chunks(SECTOR as usize)) {
            let cell = &self.cells[s as usize];
            let wanted = cell.later.last().map_or(cell.base, |(_, left)| *left);
            if wanted.is_some_and(|v| bytes_of(v) != found) {
                return Err(format!("sector {s} is not {wanted:?}: {:?}", &found[..8]));
            }
        }
        Ok(())
    }

    /// Checks the content after a power cut; that content stays.
    pub fn survived(&mut self, bytes: &[u8]) -> Result<(), String> {
        for (s, found) in bytes.chunks(SECTOR as usize).enumerate() {
            let cell = &mut self.cells[s];
            let all: Vec<Left> =
                std::iter::once(cell.base).chain(cell.later.iter().map(|l| l.1)).collect();
            let known: Option<Vec<u64>> = all.into_iter().collect();
            let fits = known.as_ref().is_none_or(|k| k.iter().any(|v| bytes_of(*v) == found));
            if !fits {
                return Err(format!("sector {s} is none of {known:?}: {:?}", &found[..8]));
            }
            let mut word = [0; 8];
            word.copy_from_slice(&found[..8]);
            let value = u64::from_le_bytes(word);
            let base = (bytes_of(value) == found).then_some(value);
            *cell = Cell { base, ..Cell::default() };
        }
        Ok(())
    }
}
