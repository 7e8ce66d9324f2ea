//! The verbs `backup` and `restore`.

use bio::Errno;
use geom::{Error, GeomId, GraphControl};

use super::backup::Backup;
use super::class::refusal;
use super::commit::{commit, undo};
use super::create::{NewTable, begin};
use super::geom::PartGeom;
use super::request::{PartAnswer, Restore};
use super::restore::{RestoreOptions, steps};
use super::verbs::{answer, find, with};
use super::{Media, class::NAME};

/// A command that recreates the table of `name` as it is on the media, without pending edits.
pub(super) fn backup(control: &mut GraphControl, name: &str) -> Result<Backup, Error> {
    let geom = find(control, name)?;
    let waits = || {
        let what = format!("{name} carries no table yet; `part commit {name}` writes it");
        Error::new(Errno::NoEnt, what)
    };
    with(&mut control.topology, geom, |part, _| {
        let table = part.media.as_ref().ok_or_else(waits)?;
        // The damage of a damaged table is not part of its backup.
        let recovered = table.recover().map_err(refusal)?;
        Ok(recovered.backup())
    })?
}

/// Makes the table of a backup on every provider: in memory on all of them first, so that a
/// refusal leaves all as they were. A partition table gives way by force, other contents only on
/// the providers that are named for it.
pub(super) fn restore(
    control: &mut GraphControl,
    request: &Restore,
    now: bool,
) -> Result<PartAnswer, Error> {
    let Restore { geoms: names, labels, force: replace, yes_destroy: consent, ids, backup } =
        request;
    let take = RestoreOptions { labels: *labels, ids: *ids };
    let lacks = || Error::inval("part restore: `backup` is missing");
    let source = Backup::read(backup.as_ref().ok_or_else(lacks)?).map_err(refusal)?;
    let scheme = source.scheme().map_err(refusal)?;
    if names.is_empty() {
        return Err(Error::inval("part restore: on which provider?"));
    }
    if take.ids && names.len() > 1 {
        let what = "part restore: two disks with the same unique ids would be taken for one; \
            restore with ids on one provider only";
        return Err(Error::inval(what));
    }
    let tables = |media: Media, random: &[[u8; 16]]| Ok(steps(source.table(media, take, random)?));
    let mut begun: Vec<GeomId> = Vec::new();
    for name in names {
        let overwrite = consent.contains(name);
        let making = NewTable {
            scheme,
            replace: *replace || overwrite,
            overwrite,
            replace_option: Some("restore with --force"),
            done: "restored",
            random_blocks: source.random_blocks(),
            tables: &tables,
        };
        let geom = no_edits(control, name).and_then(|()| begin(control, name, &making));
        match geom {
            Ok(geom) => begun.push(geom),
            Err(error) => {
                for geom in begun {
                    undo(control, geom)?;
                }
                return Err(error);
            }
        }
    }
    let mut done = PartAnswer::default();
    let mut restored = Vec::new();
    let mut failed = None;
    for (name, geom) in names.iter().zip(begun) {
        // After one that failed the others are left as they were.
        let committed = match (&failed, now) {
            (None, true) => commit(control, geom),
            (None, false) => Ok(()),
            (Some(_), _) => undo(control, geom),
        };
        match (committed, &failed) {
            (Ok(()), None) => {
                let one = answer(control, name, String::new(), Vec::new());
                done.tables.extend(one.tables);
                restored.push(format!("{name} restored"));
            }
            (Err(error), None) => failed = Some(error),
            _ => {}
        }
    }
    match failed {
        None => {
            done.message = restored.join("\n");
            Ok(done)
        }
        Some(error) if restored.is_empty() => Err(error),
        Some(error) => {
            let what = format!("{}; before that: {}", error.message, restored.join(", "));
            Err(Error::new(error.kind, what))
        }
    }
}

/// Edits that wait are not thrown away by the way.
fn no_edits(control: &mut GraphControl, name: &str) -> Result<(), Error> {
    let Some(geom) = control.topology.find_geom(NAME, name) else { return Ok(()) };
    let waits = |part: &mut PartGeom, _: &mut geom::Topology| part.edits.is_some();
    if with(&mut control.topology, geom, waits)? {
        let what = format!("{name} has pending changes; commit or undo them first");
        return Err(Error::new(Errno::Busy, what));
    }
    Ok(())
}
