//! Commands to type after a file server could not be opened.

use crate::fault::Fault;
use crate::volume;

/// The next command after a fault of the opening of `name`. `recover` needs `--force` where the
/// cache device is formatted, and it is named before `ream`, which discards every dump.
pub(super) fn next_for(fault: &Fault, name: &str, has_worm: bool, is_formatted: bool) -> String {
    let force = if is_formatted { " --force" } else { "" };
    match fault {
        Fault::Foreign(_) if has_worm && is_formatted => format!(
            "reconnect a device of its WORM, then `ashlar fs start {name}`; if all are lost for \
             good, `ashlar fs ream {name} --force` makes a new file system and discards the \
             contents of the cache device"
        ),
        Fault::Invalid(volume::MEMBER_COUNT_DIFFERS) => format!(
            "list as many devices as it was made with, a blank one in the place of a lost one, \
             and `ashlar apply`; then `ashlar fs replace {name} DEVICE`"
        ),
        Fault::Foreign(_) if has_worm => format!(
            "`ashlar fs recover {name}{force}` begins again from the newest dump of the WORM; to \
             make a new file system instead, `ashlar fs ream {name}`"
        ),
        Fault::Foreign(_) => format!("`ashlar fs ream {name}` makes a new one"),
        Fault::Corrupt(_) if has_worm => format!(
            "`ashlar fs recover {name} --force` begins again from the newest dump of the WORM"
        ),
        Fault::Fenced(_) => format!(
            "if that server is to serve no more, `ashlar fs recover {name} --force` takes the \
             WORM back from its newest dump"
        ),
        Fault::Io(..) => format!("check the device, then `ashlar fs start {name}`"),
        _ => format!("repair that, then `ashlar fs start {name}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bio::Errno;

    #[test]
    fn recover_has_force_on_a_formatted_cache_and_precedes_ream() {
        let what = || "ssd: it".to_owned();
        let faults = [
            Fault::Foreign(what()),
            Fault::Corrupt(what()),
            Fault::Fenced(what()),
            Fault::Invalid(volume::MEMBER_COUNT_DIFFERS),
            Fault::Io(Errno::Io, what()),
        ];
        for fault in &faults {
            for (has_worm, is_formatted) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let next = next_for(fault, "main", has_worm, is_formatted);
                let recover = next.find("fs recover main");
                if let (Some(at), true) = (recover, is_formatted) {
                    assert!(next[at..].starts_with("fs recover main --force"), "{next}");
                }
                if let (Some(recover), Some(ream)) = (recover, next.find("fs ream")) {
                    assert!(recover < ream, "{next}");
                }
            }
        }
    }

    #[test]
    fn lost_cache_device_leads_to_recover_and_a_damaged_one_to_its_force() {
        let blank = next_for(&Fault::Foreign("ssd: blank".into()), "main", true, false);
        assert!(blank.starts_with("`ashlar fs recover main` begins"), "{blank}");
        for damaged in [Fault::Corrupt("ssd: block 5".into()), Fault::Fenced("other".into())] {
            let next = next_for(&damaged, "main", true, true);
            assert!(next.contains("`ashlar fs recover main --force`"), "{next}");
        }
        // No dump can be read while no device of the WORM is there.
        let lost = next_for(&Fault::Foreign("far: blank".into()), "main", true, true);
        assert!(!lost.contains("recover") && lost.contains("ream main --force"), "{lost}");
    }
}
