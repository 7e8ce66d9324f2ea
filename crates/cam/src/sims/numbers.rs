//! Numbers of the places of a bus, such as portals, interfaces and devices. Other state refers to a
//! place by its number, so a place that the configuration no longer names keeps it and gets it back
//! when it returns.

/// See the module.
#[derive(Debug)]
pub(super) struct Numbers<T> {
    /// By number, and whether the configuration names the place.
    places: Vec<(T, bool)>,
}

impl<T: PartialEq + Clone> Numbers<T> {
    /// Numbers these places in their order.
    pub(super) fn new(named: Vec<T>) -> Numbers<T> {
        Numbers { places: named.into_iter().map(|place| (place, true)).collect() }
    }

    /// The place of a number, whether it is named or not.
    pub(super) fn get(&self, number: usize) -> Option<&T> {
        self.places.get(number).map(|(place, _)| place)
    }

    /// Whether the configuration names the place of a number.
    pub(super) fn is_named(&self, number: usize) -> bool {
        self.places.get(number).is_some_and(|(_, is_named)| *is_named)
    }

    /// The places that the configuration names.
    pub(super) fn named(&self) -> impl Iterator<Item = (usize, &T)> {
        let all = self.places.iter().enumerate();
        all.filter(|(_, (_, is_named))| *is_named).map(|(number, (place, _))| (number, place))
    }

    /// All numbers are below it.
    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// The configuration names these places from now on. Returns the numbers of the removed ones
    /// and of the added ones.
    ///
    /// # Errors
    /// There were more than `most` places since the bus was opened; `key` names them. Nothing has
    /// changed then.
    pub(super) fn set(
        &mut self,
        (key, most): (&str, usize),
        wanted: &[T],
    ) -> Result<[Vec<usize>; 2], String> {
        let is_new = |place: &&T| !self.places.iter().any(|(known, _)| known == *place);
        let new: Vec<T> = wanted.iter().filter(is_new).cloned().collect();
        let count = self.places.len() + new.len();
        if count > most {
            return Err(format!(
                "{key}: {count} since the bus was opened (limit {most}); next: remove the bus and \
                 add it again"
            ));
        }
        self.places.extend(new.into_iter().map(|place| (place, false)));
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        for (number, (place, is_named)) in self.places.iter_mut().enumerate() {
            let is_wanted = wanted.contains(place);
            match (std::mem::replace(is_named, is_wanted), is_wanted) {
                (true, false) => removed.push(number),
                (false, true) => added.push(number),
                _ => {}
            }
        }
        Ok([removed, added])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_keeps_its_number_and_gets_it_back() {
        let mut numbers = Numbers::new(vec!['a', 'b']);
        let mut set = |wanted: &[char]| numbers.set(("places", 3), wanted);
        assert_eq!(set(&['b', 'c']), Ok([vec![0], vec![2]]));
        assert_eq!(set(&['c', 'a', 'b']), Ok([vec![], vec![0]]));
        let refused = set(&['d']).unwrap_err();
        assert!(refused.starts_with("places: 4 since the bus was opened (limit 3)"), "{refused}");
        assert_eq!(set(&['c']), Ok([vec![0, 1], vec![]]), "nothing had changed");
        assert_eq!(numbers.named().collect::<Vec<_>>(), [(2, &'c')]);
        assert_eq!((numbers.get(0), numbers.is_named(0), numbers.count()), (Some(&'a'), false, 3));
    }
}
