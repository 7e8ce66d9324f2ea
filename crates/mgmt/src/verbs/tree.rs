//! tree: from the disks to the live sessions in one picture.
//!
//! A provider that several geoms use has several branches. A geom with several members is drawn
//! under each of them, as `geom -t` prints it.

use super::entry::CommandVerb;
use super::index::{ExportedLun, Index};
use crate::api::{Error, GeomState, Health, Kind, Result, SCHEMA_VERSION, SystemState};
use crate::config::units::{short, short_ns};
use crate::service::Control;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Depth of the picture. Deeper branches end in three points.
const DEPTH_MAX: usize = 64;

/// Nodes of the picture. Beyond it branches end in three points: a lattice of many members has
/// more paths than anyone can read.
pub(crate) const NODES_MAX: usize = 10_000;

/// Parameters of `tree`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TreeParams {
    /// Show this disk, geom or provider and everything above it, up to the sessions.
    pub up: Option<String>,
    /// Show this provider, geom, target or initiator and everything below it, down to the disks.
    pub down: Option<String>,
}

/// One node of the tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// `disk`, `geom`, `provider`, `lun`, `group`, `target`, `session`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Further text of the line.
    pub about: String,
    /// Health of the node.
    pub health: Health,
    /// Nodes above it (with `down`: below it).
    pub children: Vec<Node>,
}

/// Answer of `tree`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TreeAnswer {
    /// Version of the format of this answer.
    pub schema_version: u32,
    /// Root nodes.
    pub roots: Vec<Node>,
}

struct TreeBuilder<'a> {
    state: &'a SystemState,
    index: Index<'a>,
    nodes_left: usize,
}

fn node(kind: &str, name: &str, about: String) -> Node {
    Node { kind: kind.to_owned(), name: name.to_owned(), about, ..Node::default() }
}

impl<'a> TreeBuilder<'a> {
    fn take_node(&mut self, depth: usize, out: &mut Node) -> bool {
        self.nodes_left = self.nodes_left.saturating_sub(1);
        let has_room = self.nodes_left > 0 && depth < DEPTH_MAX;
        if !has_room {
            out.children.push(node("more", "...", String::new()));
        }
        has_room
    }

    fn provider_node(&self, name: &str) -> Node {
        match self.index.provider(name) {
            Some((_, p)) => {
                let error = p.error.as_ref().map(|e| format!("  {e}")).unwrap_or_default();
                let text = format!("{}  {}{error}", short(p.size_bytes), p.access_counts());
                let health = if p.error.is_some() { Health::Failed } else { Health::Ok };
                Node { health, ..node("provider", name, text) }
            }
            None => Node { health: Health::Failed, ..node("provider", name, "missing".into()) },
        }
    }

    fn geom_node(&self, geom: &GeomState) -> Node {
        let kind = if geom.class == "disk" { "disk" } else { "geom" };
        let mut words = Vec::new();
        if kind == "geom" {
            words.push(geom.class.clone());
        }
        let disk = self.index.disk(&geom.name).filter(|_| kind == "disk");
        words.extend(disk.map(|d| d.kind.clone()));
        words.extend(Some(geom.state.clone()).filter(|s| !s.is_empty()));
        words.extend(Some(format!("({})", geom.why)).filter(|_| !geom.why.is_empty()));
        Node { health: geom.health, ..node(kind, &geom.name, words.join("  ")) }
    }

    /// A geom, its providers, and their users.
    fn up_geom(&mut self, geom: &'a GeomState, depth: usize) -> Node {
        let mut out = self.geom_node(geom);
        if !self.take_node(depth, &mut out) {
            return out;
        }
        // A geom whose only provider has its name is one line, not two.
        match geom.providers.as_slice() {
            [only] if only.name == geom.name => {
                let provider = self.up_provider(&only.name, depth + 1);
                out.about = format!("{}  {}", provider.about, out.about).trim_end().to_owned();
                out.health = out.health.max(provider.health);
                out.children = provider.children;
            }
            many => {
                let above = many.iter().map(|p| self.up_provider(&p.name, depth + 1));
                out.children = above.collect();
            }
        }
        out
    }

    fn up_provider(&mut self, name: &str, depth: usize) -> Node {
        let mut out = self.provider_node(name);
        if !self.take_node(depth, &mut out) {
            return out;
        }
        // LUNs that a geom of class `lun` holds open are drawn below as LUNs, with their groups.
        let luns = self.index.luns(name).to_vec();
        let drawn = |g: &&GeomState| g.class != "lun" || luns.is_empty();
        let above: Vec<_> = self.index.users_of(name).iter().copied().filter(drawn).collect();
        out.children.extend(above.into_iter().map(|geom| self.up_geom(geom, depth + 1)));
        out.children.extend(luns.into_iter().map(|exported| self.lun(exported)));
        out
    }

    fn lun(&self, exported: ExportedLun<'a>) -> Node {
        let (target, group, lun) = exported;
        let mode = if lun.read_only { "ro" } else { "rw" };
        let about = format!("{mode}  group {} of {}", group.name, target.name);
        let mut out = node("lun", &format!("LUN {}", lun.lun), about);
        out.health = self.index.lun_health(exported);
        let now = self.state.daemon.uptime_ns;
        out.children = self
            .index
            .sessions(exported)
            .iter()
            .map(|s| {
                let age = short_ns(now.saturating_sub(s.since_ns));
                let about = format!("{}  since {age}{}", s.address, s.by_portal());
                node("session", &s.initiator, about)
            })
            .collect();
        out
    }

    /// A provider and everything below it.
    fn down_provider(&mut self, name: &str, depth: usize) -> Node {
        let mut out = self.provider_node(name);
        if !self.take_node(depth, &mut out) {
            return out;
        }
        if let Some((geom, _)) = self.index.provider(name) {
            if geom.name == name {
                let own = self.down_geom(geom, depth + 1);
                out.kind = own.kind;
                out.about = format!("{}  {}", out.about, own.about).trim_end().to_owned();
                out.health = out.health.max(own.health);
                out.children = own.children;
            } else {
                let own = self.down_geom(geom, depth + 1);
                out.children.push(own);
            }
        }
        out
    }

    fn down_geom(&mut self, geom: &'a GeomState, depth: usize) -> Node {
        let mut out = self.geom_node(geom);
        let below: Vec<&str> =
            geom.consumers.iter().filter_map(|c| c.provider.as_deref()).collect();
        out.children = below.into_iter().map(|p| self.down_provider(p, depth + 1)).collect();
        out
    }

    /// The providers and disks below a target or an initiator.
    fn down_target(&mut self, name: &str) -> Option<Node> {
        let state = self.state;
        if let Some(target) = state.targets.iter().find(|t| t.name == name) {
            let mut out = node("target", name, target.portals.join(" "));
            for group in &target.groups {
                let mut one = node("group", &group.name, group.initiators.join(" "));
                one.children = self.luns_down(group, |_| true);
                out.children.push(one);
            }
            return Some(out);
        }
        let mut roots = Vec::new();
        for (target, session) in state.sessions().filter(|(_, s)| s.initiator == name) {
            let (from, portal) = (&session.address, session.by_portal());
            let about = format!("{from}  at {}{portal}", target.name);
            let mut out = node("session", name, about);
            let group = target.groups.iter().find(|g| session.group.as_ref() == Some(&g.name));
            for group in group.into_iter() {
                out.children.extend(self.luns_down(group, |n| session.luns.contains(&n)));
            }
            roots.push(out);
        }
        match roots.len() {
            0 => None,
            1 => roots.pop(),
            n => {
                let all = node("initiator", name, format!("{n} sessions"));
                Some(Node { children: roots, ..all })
            }
        }
    }

    fn luns_down(
        &mut self,
        group: &crate::api::GroupState,
        seen: impl Fn(u64) -> bool,
    ) -> Vec<Node> {
        let luns = group.luns.iter().filter(|l| seen(l.lun));
        luns.map(|l| {
            let mode = if l.read_only { "ro" } else { "rw" };
            let mut out = node("lun", &format!("LUN {}", l.lun), mode.to_owned());
            out.children.push(self.down_provider(&l.provider, 0));
            out
        })
        .collect()
    }
}

fn draw(state: &SystemState, params: &TreeParams) -> Result<Vec<Node>> {
    let mut drawer = TreeBuilder { state, index: Index::new(state), nodes_left: NODES_MAX };
    let lost =
        |name: &str| Err(Error::new(Kind::NotFound, "tree", "no object has that name").at(name));
    let geom = |name: &str| state.geoms.iter().find(|g| g.name == name);
    match (&params.up, &params.down) {
        (Some(_), Some(_)) => {
            Err(Error::new(Kind::Usage, "tree", "either --up or --down, not both"))
        }
        (Some(name), None) => match (state.provider(name), geom(name)) {
            (_, Some(geom)) => Ok(vec![drawer.up_geom(geom, 0)]),
            (Some(_), None) => Ok(vec![drawer.up_provider(name, 0)]),
            (None, None) => lost(name),
        },
        (None, Some(name)) => match (state.provider(name), geom(name)) {
            (Some(_), _) => Ok(vec![drawer.down_provider(name, 0)]),
            (None, Some(geom)) => Ok(vec![drawer.down_geom(geom, 0)]),
            (None, None) => match drawer.down_target(name) {
                Some(root) => Ok(vec![root]),
                None => lost(name),
            },
        },
        (None, None) => {
            let roots = state.geoms.iter().filter(|g| g.consumers.is_empty());
            Ok(roots.map(|g| drawer.up_geom(g, 0)).collect())
        }
    }
}

fn lines(node: &Node, first: &str, rest: &str, out: &mut String) {
    let mark = match node.health {
        Health::Ok => "",
        Health::Degraded => "  DEGRADED",
        Health::Failed => "  FAILED",
    };
    out.push_str(format!("{first}{}  {}{mark}", node.name, node.about).trim_end());
    out.push('\n');
    for (i, child) in node.children.iter().enumerate() {
        let last = i + 1 == node.children.len();
        let (branch, bar) = if last { ("`- ", "   ") } else { ("|- ", "|  ") };
        lines(child, &format!("{rest}{branch}"), &format!("{rest}{bar}"), out);
    }
}

/// Trees as indented lines.
pub(crate) fn text_of(roots: &[Node]) -> String {
    let mut out = String::new();
    roots.iter().for_each(|root| lines(root, "", "", &mut out));
    if out.is_empty() { "nothing is configured\n".to_owned() } else { out }
}

impl Verb<Control> for TreeParams {
    const NAME: &'static str = "tree";
    const DOC: &'static str = "Draw the graph from disks to sessions";
    const DETAIL: &'static str = "Every line shows name, size, access counts (read, write, \
        exclusive), class, state, and the reason why the object exists.";
    const EXAMPLE: &'static str = "tree";
    const MORE_EXAMPLES: &'static [&'static str] =
        &["tree --up d0", "tree --down iqn.1993-08.org.debian:01:a"];
    type Answer = TreeAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<TreeAnswer> {
        let roots = draw(&control.state()?, &self)?;
        Ok(TreeAnswer { schema_version: SCHEMA_VERSION, roots })
    }
}

impl CommandVerb<Control> for TreeParams {
    fn table(answer: &TreeAnswer) -> String {
        text_of(&answer.roots)
    }
}
