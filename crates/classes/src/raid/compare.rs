//! The verb that compares copies and parity.

use bio::Errno;
use geom::{Control, Error};
use serde_json::{Value, json};

use super::model::VolumeState;
use super::show::state_word;
use super::ups::Up;
use super::verbs::{Request, meant, with};
use super::volume::verify::{Wish, begin};

/// Copies and parity are compared in the background.
pub(super) fn verify(control: &mut Control, on: &str, request: &Request) -> Result<Value, Error> {
    let (words, reports) = with(control, on, |g, _, _| {
        let mut chosen = Vec::new();
        for at in meant(g, on, request)? {
            chosen.extend(g.comparable(at, request.volume.is_some())?);
        }
        if chosen.is_empty() {
            return Err(Error::inval(format!(
                "{on} has no volume with copies or parity that is up"
            )));
        }
        let names: Vec<&str> = chosen.iter().map(|(_, up, _)| up.name.as_str()).collect();
        let mut ended = false;
        for (_, up, state) in &chosen {
            if request.end {
                ended |= std::mem::take(&mut up.shared.verified().running);
            } else if up.shared.verified().running {
                let what = format!("{} is being compared: --end ends it", up.name);
                return Err(Error::new(Errno::Busy, what));
            } else if *state != VolumeState::Optimal {
                let what = format!(
                    "{} is {}: what is to be compared must be in order; `ashlar raid list {}` \
                     says what goes on",
                    up.name,
                    state_word(*state),
                    g.id.name()
                );
                return Err(Error::new(Errno::Busy, what));
            }
        }
        let (names, set) = (names.join(", "), g.id.name());
        if request.end {
            let value = |(at, up, _): &(usize, &Up, _)| {
                let mut value = up.shared.verified().value(|slot| g.member_name(*at, slot));
                value["volume"] = json!(up.name);
                value
            };
            let reports: Vec<Value> = chosen.iter().map(value).collect();
            let words = if ended { "no longer compared" } else { "not being compared" };
            return Ok((format!("{names}: {words}"), reports));
        }
        for (_, up, _) in &chosen {
            let Request { repair, force, rate, .. } = *request;
            begin(&up.shared, Wish { repair, force, rate });
        }
        let how = format!("{names}: compared; `ashlar raid list {set}` shows how far that is");
        Ok((how, Vec::new()))
    })?;
    Ok(match request.end {
        true => json!({ "message": words, "reports": reports }),
        false => json!({ "message": words }),
    })
}
