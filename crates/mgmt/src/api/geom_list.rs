//! The verbs `status` and `list`, which every class has.

use super::RebuildState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Show providers of the class with state and components
///
/// A rebuild or resync is shown with progress, rate over the last 10 s and time left. With --wait
/// the progress is shown until none runs; a paused one is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GeomStatusParams {
    /// Providers or geoms [default: all]
    pub names: Vec<String>,
    /// For scripts: no header, name and state on every line
    #[schemars(extend("x-short" = "s"))]
    pub script: bool,
    /// Print names of geoms instead of providers
    #[schemars(extend("x-short" = "g"))]
    pub geoms: bool,
    /// Include geoms without a provider (always done)
    #[schemars(extend("x-short" = "a"))]
    pub all: bool,
    /// Wait until no rebuild runs; exit code 3 if a geom is not complete then
    pub wait: bool,
}

/// Show everything about the geoms of the class
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GeomListParams {
    /// Geoms [default: all]
    pub names: Vec<String>,
    /// Include geoms without a provider
    #[schemars(extend("x-short" = "a"))]
    pub all: bool,
}

/// Answer of `status` and `list` of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeomListing {
    /// The listing as GEOM prints it.
    pub text: String,
    /// The geoms.
    pub geoms: Vec<ListedGeom>,
    /// Whether all of them are complete; absent without `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<bool>,
}

/// One geom of a listing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListedGeom {
    /// Name of the geom.
    pub name: String,
    /// Lines of `list` about the geom, by their keys.
    pub config: BTreeMap<String, ListedLines>,
    /// Providers of the geom.
    pub providers: Vec<ListedProvider>,
    /// Providers that the geom uses.
    pub consumers: Vec<ListedConsumer>,
    /// Rebuilds that run or are paused.
    pub rebuilds: Vec<RebuildState>,
}

/// The lines with one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ListedLines {
    /// One line.
    One(String),
    /// Several lines.
    Several(Vec<String>),
}

/// A provider of a listed geom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedProvider {
    /// Name of the provider.
    pub name: String,
    /// Size, in bytes.
    pub media_bytes: u64,
    /// Size of a sector, in bytes.
    pub sector_bytes: u32,
    /// Size of a stripe, in bytes; 0: unknown.
    pub stripe_bytes: u64,
    /// Offset of the first stripe, in bytes.
    pub stripe_offset: u64,
    /// Open counts: r1w1e0.
    pub mode: String,
}

/// A provider that a listed geom uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedConsumer {
    /// Name of the provider; null: it was removed.
    pub provider: Option<String>,
    /// Size of the provider, in bytes; null: it was removed.
    pub media_bytes: Option<u64>,
    /// Open counts: r1w1e0.
    pub mode: String,
    /// Lines of `list` about the consumer, by their keys.
    pub config: BTreeMap<String, ListedLines>,
}
