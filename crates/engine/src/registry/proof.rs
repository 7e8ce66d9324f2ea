//! Credentials of initiators by access group. The authenticated name is the name by which the group
//! was chosen.
//!
//! Invariants
//!  A1  An account of one initiator lets in no other. It is looked up by the name that chose the
//!      group, and only that account is accepted.
//!  A2  In a group that has accounts no initiator is admitted without one.

use std::collections::BTreeMap;

/// A name and the secret that proves it.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// The name.
    pub user: String,
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for Account {
    /// The secret is not shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Both directions of a proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChapAccounts {
    pub account: Account,
    /// Account of this side when the initiator requires it; `None`: the account of its target.
    pub mutual: Option<Account>,
}

/// The accounts of an access group.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct GroupAuth {
    /// Of every initiator that has none of its own.
    pub group: Option<ChapAccounts>,
    /// Of single initiators, by name in the form in which they log in.
    pub initiators: BTreeMap<String, ChapAccounts>,
}

/// Authentication that a group requires of one initiator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequiredAuth {
    /// Nothing: its target may.
    Nothing,
    Chap(ChapAccounts),
    /// Others of its group have accounts and it has none (A2).
    NoAccount,
}

impl GroupAuth {
    /// Authentication required of an initiator (A1, A2).
    pub fn of(&self, initiator: &str) -> RequiredAuth {
        match self.initiators.get(initiator).or(self.group.as_ref()) {
            Some(proof) => RequiredAuth::Chap(proof.clone()),
            None if self.initiators.is_empty() => RequiredAuth::Nothing,
            None => RequiredAuth::NoAccount,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A1, A2.
    #[test]
    fn a1_a2_accounts_belong_to_one_initiator_and_are_required() {
        let proof = |user: &str| ChapAccounts {
            account: Account { user: user.into(), secret: user.into() },
            mutual: None,
        };
        let none = GroupAuth::default();
        assert_eq!(none.of("iqn.a"), RequiredAuth::Nothing);
        let own = BTreeMap::from([("iqn.a".to_owned(), proof("a"))]);
        let single = GroupAuth { group: None, initiators: own.clone() };
        assert_eq!(single.of("iqn.a"), RequiredAuth::Chap(proof("a")));
        assert_eq!(single.of("iqn.b"), RequiredAuth::NoAccount);
        let both = GroupAuth { group: Some(proof("all")), initiators: own };
        assert_eq!(both.of("iqn.a"), RequiredAuth::Chap(proof("a")), "its own and no other");
        assert_eq!(both.of("iqn.b"), RequiredAuth::Chap(proof("all")));
        assert!(!format!("{both:?}").contains("secret"));
    }
}
