//! Serial numbers of the disks that were members, by the members' numbers. A disk that arrives with
//! the number of another disk may be a copy of it (M11 of `state`).

use std::collections::BTreeMap;

/// Maximum number of entries. When it is reached, all are dropped, and a copy of one of those disks
/// is not recognized.
const IDENTS_MAX: usize = 256;

/// See the module.
#[derive(Default)]
pub(super) struct Idents(BTreeMap<u32, String>);

impl Idents {
    /// A disk with this serial number arrived as the member of this number. True when that was
    /// another disk before.
    pub(super) fn is_another(&mut self, member: u32, ident: String) -> bool {
        if self.0.len() >= IDENTS_MAX && !self.0.contains_key(&member) {
            self.0.clear();
        }
        match self.0.get(&member) {
            Some(was) if *was == ident => false,
            was => {
                let is = was.is_some();
                self.0.insert(member, ident);
                is
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_disk_with_a_known_member_number_is_detected() {
        let mut idents = Idents::default();
        assert!(!idents.is_another(1, "a".into()), "the first");
        assert!(!idents.is_another(1, "a".into()), "the same");
        assert!(!idents.is_another(2, "b".into()), "another member");
        assert!(idents.is_another(1, "b".into()));
        assert!(idents.is_another(1, "a".into()), "back again");
    }

    #[test]
    fn number_of_kept_identities_is_bounded() {
        let mut idents = Idents::default();
        for member in 0..IDENTS_MAX as u32 {
            idents.is_another(member, "a".into());
        }
        assert!(idents.is_another(0, "b".into()), "all are known while there is room");
        assert!(idents.is_another(255, "b".into()), "whoever is known costs nobody his place");
        for member in 0..1000 {
            idents.is_another(member, "c".into());
            assert!(idents.0.len() <= IDENTS_MAX);
        }
    }
}
