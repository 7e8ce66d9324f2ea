//! Names of open disks by file or device, so that a disk which is added to the graph is compared
//! with the disks of its medium alone. A start adds many thousand.

use std::collections::{BTreeSet, HashMap};

use disks::Medium;

/// See the module. The name of a lost disk is kept until its medium is looked up.
#[derive(Default)]
pub struct MediumIndex {
    /// Names by [`Medium::storage`].
    names: HashMap<Medium, BTreeSet<String>>,
    /// [`Medium::storage`] by name.
    storages: HashMap<String, Medium>,
}

impl MediumIndex {
    /// A disk was opened.
    pub fn add(&mut self, disk: &str, medium: &Medium) {
        self.remove(disk);
        let storage = medium.storage();
        self.names.entry(storage.clone()).or_default().insert(disk.to_owned());
        self.storages.insert(disk.to_owned(), storage);
    }

    /// A disk was removed.
    pub fn remove(&mut self, disk: &str) {
        let Some(storage) = self.storages.remove(disk) else { return };
        let Some(names) = self.names.get_mut(&storage) else { return };
        names.remove(disk);
        if names.is_empty() {
            self.names.remove(&storage);
        }
    }

    /// A disk has another name.
    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(storage) = self.storages.get(from).cloned() {
            self.remove(from);
            self.add(to, &storage);
        }
    }

    /// The disks that have the bytes of a medium open, each with its own medium. `open` answers the
    /// medium of a disk, if the disk is open.
    pub fn users(
        &mut self,
        medium: &Medium,
        mut open: impl FnMut(&str) -> Option<Medium>,
    ) -> Vec<(String, Medium)> {
        let names = self.names.get(&medium.storage()).cloned().unwrap_or_default();
        let mut users = Vec::new();
        for name in names {
            match open(&name) {
                Some(its) => users.push((name, its)),
                None => self.remove(&name),
            }
        }
        users
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_a_medium_are_the_open_disks_that_have_its_bytes() {
        let (file, other) = (Medium::File(8, 0, 1), Medium::File(8, 0, 2));
        // A loop device of the first file.
        let device = Medium::Loop(3, (8, 0, 1));
        let mut media = MediumIndex::default();
        for (name, medium) in [("a", &file), ("b", &device), ("c", &other), ("lost", &file)] {
            media.add(name, medium);
        }
        let users = |media: &mut MediumIndex, of: &Medium| -> Vec<String> {
            let all = media.users(of, |name| (name != "lost").then(|| file.clone()));
            all.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(users(&mut media, &file), ["a", "b"]);
        assert!(!media.storages.contains_key("lost"), "it is forgotten when it is found lost");
        media.rename("b", "d");
        media.remove("a");
        assert_eq!(users(&mut media, &device), ["d"]);
        media.add("d", &other);
        assert!(users(&mut media, &file).is_empty());
        assert_eq!(users(&mut media, &other), ["c", "d"]);
        assert_eq!(media.names.len(), 1, "media without a disk are not kept");
    }
}
