//! The kinds of disks, in the order of lists.

use crate::blockdev::BlockDev;
use crate::file::ImageFile;
use crate::kind::{Kind, PathKind};
use crate::memory::Memory;
use crate::model::Model;
use crate::nbd::Nbd;
use crate::null::Null;

pub const KINDS: &[&dyn Kind] = &[&ImageFile, &BlockDev, &Memory, &Null, &Model, &Nbd];

pub fn kind(name: &str) -> Option<&'static dyn Kind> {
    KINDS.iter().copied().find(|k| k.name() == name)
}

/// See [`Kind::path_kind`]; of an unknown kind, nothing.
pub fn path_kind(name: &str) -> PathKind {
    kind(name).map(Kind::path_kind).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_schemas_refuse_unknown_keys() {
        for (i, k) in KINDS.iter().enumerate() {
            assert!(KINDS[i + 1..].iter().all(|o| o.name() != k.name()));
            assert_eq!(kind(k.name()).map(|k| k.doc()), Some(k.doc()));
            let schema = k.schema();
            assert_eq!(schema["additionalProperties"], false, "{}", k.name());
            let fields = schema["properties"].as_object().unwrap();
            assert!(fields.values().all(|f| f["description"].is_string()), "{}", k.name());
            let has_path = path_kind(k.name()) != PathKind::None;
            assert_eq!(fields.contains_key("path"), has_path, "{}", k.name());
        }
    }
}
