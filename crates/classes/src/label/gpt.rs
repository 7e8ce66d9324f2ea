//! Names from a partition's entry in a GPT; nothing is read.

use super::Found;
use crate::probe::ProbeError;

/// `gpt/NAME` and `gptid/UUID` of a partition of `len` bytes with this name and unique id.
///
/// # Errors
/// When neither makes a provider's name.
pub fn gpt_names(name: &str, uuid: &str, len: u64) -> Result<Found, ProbeError> {
    let id = (!uuid.bytes().all(|byte| matches!(byte, b'0' | b'-'))).then_some(uuid);
    Found::new("GPT entry", ("gpt", name.as_bytes()), ("gptid", id), len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_label_and_guid_become_provider_names() {
        let id = "0c5e0c5e-0001-4002-8003-000000000001";
        let found = gpt_names("EFI system", id, 512).expect("named");
        let names: Vec<&str> = found.providers().collect();
        assert_eq!(names, ["gpt/EFI%20system", "gptid/0c5e0c5e-0001-4002-8003-000000000001"]);
        let found = gpt_names("", id, 512).expect("an id");
        assert_eq!(found.providers().count(), 1);
        assert!(gpt_names("", "00000000-0000-0000-0000-000000000000", 512).is_err());
    }
}
