//! The `recover` verb: rewrites the copies of a damaged table.

use geom::{At, Deserialize, Error, JsonSchema, Topology, Verb};
use serde::Serialize;

use super::{Change, Edit, PartAnswer, TableBefore, TableEdit, answer, edit, find, with};
use crate::part::Table;
use crate::part::class::{PartClass, refusal};
use crate::part::geom::PartGeom;
use crate::part::request::TableName;

// Without a comment of its own, it has the schema of the edit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Recover(pub Edit<TableName>);

struct RecoverTable(TableName);

impl TableEdit for RecoverTable {
    fn geom(&self) -> &str {
        &self.0.geom
    }

    fn change(self, before: &TableBefore<'_>) -> Result<Change, Error> {
        let next = before.table.recover().map_err(refusal)?;
        Ok(Change::of(next, None, format!("{} recovered", before.name)))
    }
}

impl Verb<PartClass> for Recover {
    const NAME: &'static str = "recover";
    const DOC: &'static str = "Rewrite a damaged partition table from its good copy";
    const POSITIONAL: &'static [&'static str] = &["geom"];
    const EXAMPLE: &'static str = "part recover ada0";
    const WRITES: bool = true;
    type Answer = PartAnswer;

    fn run(self, (_, control): At<'_, PartClass>) -> Result<PartAnswer, Error> {
        let (of, at_once) = self.0.parts();
        let geom = find(control, &of.geom)?;
        let is_corrupt =
            |part: &mut PartGeom, _: &mut Topology| part.table.as_ref().map(Table::is_corrupt);
        if with(&mut control.topology, geom, is_corrupt)? == Some(false) {
            let message = format!("{} is whole: recovering is not needed", of.geom);
            return Ok(answer(control, &of.geom, message, Vec::new()));
        }
        edit(control, RecoverTable(of), at_once)
    }
}
