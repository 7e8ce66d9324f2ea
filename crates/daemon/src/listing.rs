//! Listings of any class: the output of GEOM's `status` and `list` (docs/reference/geom.md 4.1,
//! 4.2), and the same as values. `status --wait` is unfinished while a rebuild runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use geom::{
    Access, ConsumerView, GeomView, GraphControl, Limits, Measure, ProviderView, Severity,
    Topology, Unfinished,
};
use mgmt::api::{
    Error, GeomListing, GeomStatusParams, Kind, ListedConsumer, ListedGeom, ListedLines,
    ListedProvider, RebuildState, Result,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::state::rebuild;

type ShowLines<'a> = &'a [(&'static str, String)];

/// Between two questions of `status --wait`, ms.
const WAIT_INTERVAL_MS: u64 = 250;

/// Answers `status` or `list` of a class: `text` as GEOM prints it, `geoms` for programs.
///
/// # Errors
/// A name that no geom and no provider of the class has.
pub fn answer(
    control: &GraphControl,
    class: &str,
    verb: &str,
    params: &Map<String, Value>,
) -> Result<Value> {
    let all = control.topology.class_view(class, control.now_ns());
    let given = GeomStatusParams::deserialize(&Value::Object(params.clone()))
        .map_err(|e| Error::new(Kind::Usage, format!("{class} {verb}"), e))?;
    let names: BTreeSet<&str> = given.names.iter().map(String::as_str).collect();
    for name in &names {
        if !all.iter().any(|g| has_name(g, name)) {
            let why = format!("class {class} has no geom or provider of that name");
            let next = format!("ashlar {class} status");
            return Err(Error::new(Kind::NotFound, format!("{class} {verb}"), why)
                .at(*name)
                .next(next));
        }
    }
    let chosen: Vec<&GeomView> =
        all.iter().filter(|g| names.is_empty() || names.iter().any(|n| has_name(g, n))).collect();
    if given.wait
        && let Some(running) = chosen.iter().find_map(|g| Some((*g, rebuilds(g).next()?)))
    {
        return unfinished(class, running, params);
    }
    let text = match verb {
        "list" => {
            // Geoms of some classes have no provider at all, and a request that names one shows it
            // anyway.
            let provides = |g: &&&GeomView| !g.providers.is_empty();
            let all = given.all || !names.is_empty() || !chosen.iter().any(|g| provides(&g));
            let shown = chosen.iter().filter(|g| all || provides(g));
            shown.map(|g| listed(&control.topology, g)).collect()
        }
        _ => status(&chosen, given.script, given.geoms),
    };
    let geoms = chosen.iter().map(|g| listed_geom(&control.topology, g)).collect();
    let mut troubles = chosen.iter().flat_map(|g| &g.troubles);
    let whole = given.wait.then(|| troubles.all(|t| t.severity == Severity::Good));
    let answer = serde_json::to_value(GeomListing { text, geoms, whole });
    answer.map_err(|e| Error::new(Kind::Internal, format!("{class} {verb}"), e))
}

/// The rebuilds of a geom that run or are paused.
fn rebuilds(geom: &GeomView) -> impl Iterator<Item = RebuildState> {
    geom.measures.iter().filter_map(Measure::progress).map(rebuild)
}

/// The answer while a rebuild runs: it is requested again.
///
/// # Errors
/// The rebuild is paused: it would not end.
fn unfinished(
    class: &str,
    (geom, copy): (&GeomView, RebuildState),
    params: &Map<String, Value>,
) -> Result<Value> {
    if copy.paused {
        let why = format!("the rebuild of {} is paused at {}%", copy.part, copy.percent);
        let next = copy.switch_command(class, &geom.name);
        return Err(Error::new(Kind::Busy, format!("{class} status"), why)
            .at(&geom.name)
            .next(next));
    }
    let mut what = vec![format!("{class} {}: {}", geom.name, copy.part)];
    what.extend(copy.pace());
    let progress = Unfinished {
        what: what.join(", "),
        done: copy.done_bytes,
        total: copy.size_bytes,
        every_ms: Some(WAIT_INTERVAL_MS),
        goes_on: None,
        again: Value::Object(params.clone()),
    };
    Ok(progress.to_value())
}

fn has_name(geom: &GeomView, name: &str) -> bool {
    let ends = |p: &ProviderView| p.name.strip_suffix(name).is_some_and(|head| head.ends_with('/'));
    geom.name == name || geom.providers.iter().any(|p| p.name == name || ends(p))
}

fn value_of<'a>(lines: ShowLines<'a>, key: &str) -> Option<&'a str> {
    lines.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, v)| v.as_str())
}

/// Name, state and components of one line of `status`.
struct Row {
    name: String,
    state: String,
    components: Vec<String>,
}

fn component(geom: &GeomView, consumer: &ConsumerView) -> Option<String> {
    let name = consumer.provider.as_deref()?;
    let state = value_of(&consumer.show, "State");
    let words = rebuilds(geom).find(|copy| copy.part == name).map(|copy| copy.words());
    let shown = value_of(&consumer.show, "Synchronized").map(str::to_owned);
    Some(match (state, words.or(shown)) {
        (Some(state), Some(progress)) => format!("{name} ({state}, {progress})"),
        (Some(state), None) => format!("{name} ({state})"),
        (None, Some(progress)) => format!("{name} ({progress})"),
        _ => name.to_owned(),
    })
}

fn rows(geoms: &[&GeomView], by_geom: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for geom in geoms {
        let state = value_of(&geom.show, "State").unwrap_or("N/A").to_owned();
        let mut components: Vec<String> =
            geom.consumers.iter().rev().filter_map(|c| component(geom, c)).collect();
        // Those of volumes and of joined devices; those of members are beside the member.
        let is_member =
            |part: &str| geom.consumers.iter().any(|c| c.provider.as_deref() == Some(part));
        let others = rebuilds(geom).filter(|copy| !is_member(&copy.part));
        components.extend(others.map(|copy| format!("{} ({})", copy.part, copy.words())));
        if components.is_empty() {
            components.push("N/A".into());
        }
        let names: Vec<&str> = match by_geom || geom.providers.is_empty() {
            true => vec![&geom.name],
            false => geom.providers.iter().map(|p| p.name.as_str()).collect(),
        };
        rows.extend(names.into_iter().map(|name| Row {
            name: name.to_owned(),
            state: state.clone(),
            components: components.clone(),
        }));
    }
    rows
}

/// The table of `status`: right-aligned, further components on lines of their own; with `script`
/// without a header and with name and state on every line.
fn status(geoms: &[&GeomView], script: bool, by_geom: bool) -> String {
    let rows = rows(geoms, by_geom);
    let width = |head: &str, of: fn(&Row) -> usize| {
        rows.iter().map(of).chain([if script { 0 } else { head.len() }]).max().unwrap_or(0)
    };
    let name_width = width("Name", |r| r.name.chars().count());
    let state_width = width("Status", |r| r.state.chars().count());
    let mut out = String::new();
    let mut line = |name: &str, state: &str, component: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{name:>name_width$}  {state:>state_width$}  {component}");
    };
    if !script {
        line("Name", "Status", "Components");
    }
    for row in &rows {
        for (i, component) in row.components.iter().enumerate() {
            match script || i == 0 {
                true => line(&row.name, &row.state, component),
                false => line("", "", component),
            }
        }
    }
    out
}

/// `698G`, `1.0T`, `512B`: base 1024, one decimal below ten.
fn human_size(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = units.get(unit).unwrap_or(&"");
    match unit > 0 && value < 9.95 {
        true => format!("{value:.1}{text}"),
        false => format!("{value:.0}{text}"),
    }
}

fn mode(counts: Access) -> String {
    format!("Mode: {counts}")
}

fn sizes(limits: Limits) -> [String; 2] {
    let media = limits.media_bytes;
    [
        format!("Mediasize: {media} ({})", human_size(media)),
        format!("Sectorsize: {}", limits.sector_bytes),
    ]
}

fn provider_lines(provider: &ProviderView) -> Vec<String> {
    let mut out = sizes(provider.limits).to_vec();
    if provider.stripe_bytes > 0 || provider.stripe_offset > 0 {
        out.push(format!("Stripesize: {}", provider.stripe_bytes));
        out.push(format!("Stripeoffset: {}", provider.stripe_offset));
    }
    out.push(mode(provider.counts));
    out
}

fn consumer_lines(topology: &Topology, consumer: &ConsumerView) -> Vec<String> {
    let below = topology.below(consumer.id).and_then(|p| topology.limits(p));
    let mut out = below.map(|limits| sizes(limits).to_vec()).unwrap_or_default();
    out.push(mode(consumer.counts));
    out.extend(consumer.show.iter().map(|(key, value)| format!("{key}: {value}")));
    out
}

/// One geom as `list` prints it.
fn listed(topology: &Topology, geom: &GeomView) -> String {
    let mut out = format!("Geom name: {}\n", geom.name);
    for (key, value) in &geom.show {
        let _ = writeln!(out, "{key}: {value}");
    }
    let mut part = |title: &str, all: Vec<(String, Vec<String>)>| {
        if all.is_empty() {
            return;
        }
        let _ = writeln!(out, "{title}:");
        for (i, (name, lines)) in all.into_iter().enumerate() {
            let _ = writeln!(out, "{}. Name: {name}", i + 1);
            for line in lines {
                let _ = writeln!(out, "   {line}");
            }
        }
    };
    part("Providers", geom.providers.iter().map(|p| (p.name.clone(), provider_lines(p))).collect());
    // The newest consumer is first in the graph.
    let below = geom.consumers.iter().rev().filter_map(|c| {
        let name = c.provider.clone()?;
        Some((name, consumer_lines(topology, c)))
    });
    part("Consumers", below.collect());
    out.push('\n');
    out
}

/// Lines by their keys; several lines with one key are a list.
fn by_key(lines: ShowLines<'_>) -> BTreeMap<String, ListedLines> {
    let mut out: BTreeMap<String, ListedLines> = BTreeMap::new();
    for (key, value) in lines {
        let lines = match out.remove(*key) {
            None => ListedLines::One(value.clone()),
            Some(ListedLines::One(one)) => ListedLines::Several(vec![one, value.clone()]),
            Some(ListedLines::Several(mut all)) => {
                all.push(value.clone());
                ListedLines::Several(all)
            }
        };
        out.insert((*key).to_owned(), lines);
    }
    out
}

fn listed_geom(topology: &Topology, geom: &GeomView) -> ListedGeom {
    let providers = geom.providers.iter().map(|p| ListedProvider {
        name: p.name.clone(),
        media_bytes: p.limits.media_bytes,
        sector_bytes: p.limits.sector_bytes,
        stripe_bytes: p.stripe_bytes,
        stripe_offset: p.stripe_offset,
        mode: p.counts.to_string(),
    });
    let consumers = geom.consumers.iter().rev().map(|c| {
        let limits = topology.below(c.id).and_then(|p| topology.limits(p));
        ListedConsumer {
            provider: c.provider.clone(),
            media_bytes: limits.map(|l| l.media_bytes),
            mode: c.counts.to_string(),
            config: by_key(&c.show),
        }
    });
    ListedGeom {
        name: geom.name.clone(),
        config: by_key(&geom.show),
        providers: providers.collect(),
        consumers: consumers.collect(),
        rebuilds: rebuilds(geom).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{by_key, human_size};
    use serde_json::json;

    #[test]
    fn lines_with_one_key_become_a_list() {
        let lines = [("Volume", "a"), ("State", "b"), ("Volume", "c"), ("Volume", "d")];
        let lines = lines.map(|(key, value)| (key, value.to_owned()));
        let value = serde_json::to_value(by_key(&lines)).expect("it has a form in JSON");
        assert_eq!(value, json!({ "Volume": ["a", "c", "d"], "State": "b" }));
    }

    #[test]
    fn sizes_are_shown_in_at_most_four_characters() {
        let cases = [
            (512, "512B"),
            (10 << 30, "10G"),
            (1 << 40, "1.0T"),
            (750_156_374_016, "699G"),
            (0, "0B"),
            (1000, "1.0K"),
        ];
        for (bytes, text) in cases {
            assert_eq!(human_size(bytes), text);
        }
    }
}
