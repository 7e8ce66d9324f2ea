//! graph: the graph from disks to sessions as text, or as a document for another program.

use super::entry::CommandVerb;
use crate::api::{Error, Kind, Result, SCHEMA_VERSION};
use crate::page::formats::{GraphFormat, written};
use crate::page::{Drawing, Selection, Toward, select};
use crate::service::Control;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `graph`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GraphParams {
    /// Show only this object and those above and below it [default: all objects]
    pub name: Option<String>,
    /// Format of the graph.
    pub format: GraphFormat,
    /// Show NAME and the objects above it.
    pub up: bool,
    /// Show NAME and the objects below it.
    pub down: bool,
    /// Show each object: more than 200 are otherwise folded.
    pub all: bool,
}

/// Answer of `graph`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GraphAnswer {
    /// Version of the format of this answer.
    pub schema_version: u32,
    /// Nodes with their places, and edges.
    pub graph: Drawing,
    /// The graph in the requested format.
    pub text: String,
}

impl Verb<Control> for GraphParams {
    const NAME: &'static str = "graph";
    const DOC: &'static str = "Draw the graph as text, DOT, Mermaid, SVG or JSON";
    const DETAIL: &'static str = "NAME is a disk, geom, provider, target or initiator, or an \
        identifier such as mirror:data. Disks are on the left and sessions on the right. Of a \
        graph of more than 200 objects, healthy ones of one class and layer become one node, \
        unless --all is given. States are shown by colour, by the border, and as a word.";
    const POSITIONAL: &'static [&'static str] = &["name"];
    const EXAMPLE: &'static str = "graph";
    const MORE_EXAMPLES: &'static [&'static str] =
        &["graph d0 --up", "graph --format dot | dot -Tsvg", "graph --format svg > graph.svg"];
    type Answer = GraphAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<GraphAnswer> {
        let toward = toward(&self)?;
        let name = self.name.as_deref();
        let selection = Selection { name, toward, is_unfolded: self.all };
        let Some(mut graph) = select(&control.state()?, &selection) else {
            let error = Error::new(Kind::NotFound, "graph", "no object has that name");
            let next = "Run `ashlar list` to see the names of objects.";
            return Err(error.at(name.unwrap_or_default()).next(next));
        };
        for folded in graph.nodes.iter_mut().filter(|node| node.members > 1) {
            folded.about = "shown one by one with --all".to_owned();
        }
        let text = written(&graph, self.format, toward)?;
        Ok(GraphAnswer { schema_version: SCHEMA_VERSION, graph, text })
    }
}

impl CommandVerb<Control> for GraphParams {
    fn table(answer: &GraphAnswer) -> String {
        answer.text.clone()
    }
}

/// The direction that the options name.
fn toward(params: &GraphParams) -> Result<Toward> {
    let wrong = |why: &str| {
        let next = "Run `ashlar graph NAME --up` or `ashlar graph NAME --down`.";
        Err(Error::new(Kind::Usage, "graph", why).next(next))
    };
    match (params.up, params.down, &params.name) {
        (true, true, _) => wrong("--up and --down exclude each other"),
        (true, _, None) | (_, true, None) => wrong("--up and --down need the NAME of an object"),
        (true, ..) => Ok(Toward::Up),
        (_, true, _) => Ok(Toward::Down),
        (false, false, _) => Ok(Toward::Both),
    }
}
