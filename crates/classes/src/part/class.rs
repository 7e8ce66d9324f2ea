//! Class of partition tables: tasting, claiming, taking apart.

use bio::Errno;
use geom::{
    ClassVerb, Create, Error, GeomId, GraphControl, Local, NoParams, ProviderId, TasteOutcome,
    Taster, Topology, Typed,
};

use super::geom::{PartGeom, TableLocation};
use super::{DEPTH_MAX, Kind, PartError, PartErrorKind, Scheme, Table, TableContext, step, verbs};
use crate::probe::Sectors;
use crate::probe_io::drive;

pub(super) const NAME: &str = "part";

/// Partition tables: GPT, MBR, and the chain of logical partitions inside an MBR partition.
pub struct PartClass;

/// What tasting found.
pub struct Found {
    table: Table,
    depth: u32,
}

/// The place that a provider's attributes describe, or why no table is allowed there.
pub(crate) fn place(
    text: impl Fn(&str) -> Option<String>,
    int: impl Fn(&str) -> Option<u64>,
) -> Result<TableContext, String> {
    if int("PART::isleaf").unwrap_or(0) != 0 {
        return Err("the provider is a leaf: it cannot contain a partition table".into());
    }
    let depth = match int("PART::depth") {
        None => 0,
        Some(below) => u32::try_from(below).unwrap_or(DEPTH_MAX).saturating_add(1),
    };
    if depth >= DEPTH_MAX {
        return Err(format!("too deep: {depth} partition tables are below it already"));
    }
    let scheme = text("PART::scheme").and_then(|name| Scheme::by_name(&name));
    let kind = text("PART::type");
    let kind = scheme.zip(kind).and_then(|(s, k)| Kind::parse(s, &k, "taste").ok());
    Ok(TableContext { scheme, kind, depth, ..TableContext::default() })
}

/// Description of a table that was found.
pub(crate) fn describe(table: &Table, name: &str) -> String {
    let count = table.entries().len();
    let plural = if count == 1 { "" } else { "s" };
    let mut text = format!("{} with {count} partition{plural}", table.scheme().name());
    if table.is_corrupt() {
        text += &format!(", damaged: {}; ", damages(table));
        text += &match table.recover() {
            Ok(_) => format!("`part recover {name}` repairs it"),
            Err(error) => error.to_string(),
        };
    }
    text
}

/// The damages of a table, in one line; empty if there are none.
pub(super) fn damages(table: &Table) -> String {
    let all: Vec<String> = table.damage().iter().map(ToString::to_string).collect();
    all.join("; ")
}

/// An edit's refusal in the words of the graph.
pub(super) fn refusal(error: PartError) -> Error {
    use PartErrorKind as K;
    let kind = match error.kind {
        K::NoSpace | K::Overlap | K::OutOfRange | K::TableFull | K::TooLong => Errno::NoSpc,
        K::NoSuchIndex => Errno::NoEnt,
        K::IndexTaken => Errno::Exist,
        K::Busy => Errno::Busy,
        K::Corrupt => Errno::Perm,
        K::BadType | K::BadAttribute | K::BadLabel | K::BadValue | K::BadCode => Errno::Inval,
        K::BadMedia => Errno::NoDev,
        K::Unsupported => Errno::NoSys,
    };
    Error::new(kind, error.to_string())
}

impl Typed for PartClass {
    const NAME: &'static str = NAME;
    const DOC: &'static str =
        "Shows the partitions of a table (GPT, MBR, EBR) as providers, and edits the table.";
    const VERBS: &'static [ClassVerb<PartClass>] = verbs::VERBS;
    const CREATABLE: bool = false;
    const TASTES: bool = true;
    const ONLY_SHOWS: bool = true;
    const NAMED_AFTER_PROVIDER: bool = true;
    const PASSES_SERIAL: bool = true;
    type Params = NoParams;
    type Claim = Found;
    type Geom = PartGeom;

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome<Found>> {
        Box::pin(async move {
            let text = |name: &str| disk.text(name).map(str::to_owned);
            let place = match place(text, |name| disk.int(name)) {
                Ok(place) => place,
                Err(why) => return TasteOutcome::No(why),
            };
            let mut sectors = Sectors::new(disk.sector_bytes, disk.media_bytes);
            let read = async |offset, len| disk.read(offset, len).await;
            match drive(&mut sectors, read, |s| step(s, &place)).await {
                Ok(table) => {
                    let why = describe(&table, &disk.name);
                    TasteOutcome::Yes(why, Found { table, depth: place.depth })
                }
                Err(why) => TasteOutcome::No(why.to_string()),
            }
        })
    }

    fn claim(
        &self,
        topology: &mut Topology,
        on: ProviderId,
        why: &str,
        Found { table, depth }: Found,
    ) -> Result<(), Error> {
        let geom = PartGeom::place(topology, on, why, depth)?;
        let (stripe, offset) = topology.stripe(on);
        let table = table.with_stripe(stripe, offset);
        let filled = topology.with::<PartGeom, _>(geom, |part, topology| {
            part.found(table);
            part.sync(topology, geom, TableLocation::OnMedia)
        });
        let filled = filled.unwrap_or_else(|| Err(Error::of(Errno::NxIo, "claim")));
        if filled.is_err() {
            topology.wither_geom(geom, Errno::NxIo);
        }
        filled
    }

    fn create(&self, _: &mut Topology, request: &Create<'_, NoParams>) -> Result<GeomId, Error> {
        let what = format!(
            "a partition table is found by tasting; to write a new one: `part create -s gpt {}`",
            request.name
        );
        Err(Error::new(Errno::NotSup, what))
    }

    fn disassemble(&self, topology: &mut Topology, geom: GeomId) {
        PartGeom::abandon(topology, geom, Errno::NxIo);
    }

    fn verb(
        &self,
        control: &mut GraphControl,
        verb: &str,
        on: &str,
        params: &serde_json::Value,
    ) -> Result<serde_json::Value, Error> {
        let params = verbs::normalised(verb, on, params)?;
        geom::call(verbs::VERBS, self, control, (verb, ""), &params)
    }
}
