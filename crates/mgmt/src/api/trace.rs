//! Slow requests, with the time that each layer needed.

use super::{Error, Kind, Result};
use crate::query_string::{VALUE_BYTES_MAX, encode, fields};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Selection of slow requests by a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceQuery {
    /// Least time of a request, in nanoseconds.
    pub slow_ns: u64,
    /// Number of the last request that the client has; `None`: none yet, only begin.
    pub after: Option<u64>,
    /// Only requests of LUNs on this provider.
    pub lun: Option<String>,
    /// Only requests that passed this geom: `mirror:data` or `data`.
    pub geom: Option<String>,
}

impl TraceQuery {
    /// Path of the route.
    pub const PATH: &'static str = "/v1/trace";

    /// Path and query of the request.
    pub fn to_path(&self) -> String {
        let mut path = format!("{}?slow_ns={}", Self::PATH, self.slow_ns);
        if let Some(after) = self.after {
            path.push_str(&format!("&after={after}"));
        }
        for (key, value) in [("lun", &self.lun), ("geom", &self.geom)] {
            if let Some(value) = value {
                path.push_str(&format!("&{key}={}", encode(value)));
            }
        }
        path
    }

    /// The inverse, without the path; unknown fields are ignored.
    ///
    /// # Errors
    /// [`Kind::Usage`]: a value is not a number, or `slow_ns` is absent.
    pub fn parse(query: &str) -> Result<TraceQuery> {
        let wrong = |why: String| {
            let next = format!("GET {}?slow_ns=10000000", Self::PATH);
            Error::new(Kind::Usage, "trace", why).next(next)
        };
        let number = |key: &str, value: &str| {
            value.parse::<u64>().map_err(|_| wrong(format!("{key}: `{value}` is not a number")))
        };
        let (mut out, mut slow_ns) = (TraceQuery::default(), None);
        for (key, value) in fields(query, VALUE_BYTES_MAX) {
            match key {
                "slow_ns" => slow_ns = Some(number(key, &value)?),
                "after" => out.after = Some(number(key, &value)?),
                "lun" => out.lun = Some(value),
                "geom" => out.geom = Some(value),
                _ => {}
            }
        }
        out.slow_ns = slow_ns.ok_or_else(|| wrong("the field slow_ns is missing".to_owned()))?;
        Ok(out)
    }

    /// Whether the client selects a request.
    pub fn accepts(&self, request: &SlowRequest) -> bool {
        self.after.is_some_and(|after| request.id > after)
            && request.layer.took_ns >= self.slow_ns
            && self.lun.as_ref().is_none_or(|lun| *lun == request.layer.provider)
            && self.geom.as_ref().is_none_or(|geom| request.layer.contains(geom))
    }
}

/// A layer's part of a slow request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TracedLayer {
    /// Class and name of the geom, `mirror:data`; `cut` where the request was cut into pieces
    /// before a layer, and `gone` if the geom does not exist any more.
    pub geom: String,
    /// Name of the geom's provider that received the request.
    pub provider: String,
    /// Time from the start of the request to its arrival at the layer, in nanoseconds.
    pub start_ns: u64,
    /// Time in the layer and in those below it, in nanoseconds.
    pub took_ns: u64,
    /// The part of this time in which no layer below had the request, in nanoseconds.
    pub own_ns: u64,
    /// First byte, as the layer counts.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u64,
    /// Error with which the layer ended the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Layers below, in the order in which they received the request or a piece of it.
    pub below: Vec<TracedLayer>,
}

impl TracedLayer {
    /// Whether the layer or one below it is a geom of that name.
    fn contains(&self, geom: &str) -> bool {
        let name = self.geom.split_once(':').map(|(_, name)| name);
        self.geom == geom || name == Some(geom) || self.below.iter().any(|l| l.contains(geom))
    }

    /// Calls `f` for the layer and for those below it.
    pub fn each(&self, f: &mut dyn FnMut(&TracedLayer)) {
        f(self);
        self.below.iter().for_each(|layer| layer.each(f));
    }
}

/// A request that took long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SlowRequest {
    /// Number of the request, which increases.
    pub id: u64,
    /// Core that carried it out.
    pub core: u32,
    /// Class and name of the geom that sent it: `lun:m0` for a LUN on provider `m0`.
    pub user: String,
    /// Name of the initiator; empty for requests of the daemon.
    pub initiator: String,
    /// Number under which the initiator sees the unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lun: Option<u64>,
    /// Background task that sent it, for example `mirror rebuild m0`.
    pub task: String,
    /// `read`, `write`, `flush`, `delete`, `write-zeroes`, `map` or `getattr`.
    pub operation: String,
    /// When it arrived, as time since the start of the daemon, in nanoseconds.
    pub start_ns: u64,
    /// The same time, in nanoseconds since 1970 of the machine's calendar.
    pub start_unix_ns: u64,
    /// Whether all its parts are known.
    pub is_complete: bool,
    /// The uppermost layer.
    pub layer: TracedLayer,
}

/// Slow requests of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TraceState {
    /// Number of the newest request; `after` of the next question.
    pub last: u64,
    /// Slow requests since the start of the daemon that were not recorded, because too many ended
    /// at the same time.
    pub missed: u64,
    /// Cores that did not answer in time.
    pub silent_cores: u64,
    /// Requests in the order in which they ended.
    pub requests: Vec<SlowRequest>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_read_back_from_its_path() {
        let query = TraceQuery {
            slow_ns: 5,
            after: Some(7),
            lun: Some("mirror/a b&c".to_owned()),
            geom: Some("mirror:ä".to_owned()),
        };
        let path = query.to_path();
        let (route, fields) = path.split_once('?').expect("a query");
        assert_eq!((route, TraceQuery::parse(fields)), ("/v1/trace", Ok(query)));
        for wrong in ["", "after=1", "slow_ns=x", "slow_ns=1&after=-1"] {
            let error = TraceQuery::parse(wrong).expect_err(wrong);
            assert_eq!(error.kind, Kind::Usage, "{wrong}");
        }
    }

    #[test]
    fn requests_are_selected_by_number_time_lun_and_geom() {
        let layer = |geom: &str, took_ns: u64, below: Vec<TracedLayer>| TracedLayer {
            geom: geom.to_owned(),
            provider: "m0".to_owned(),
            took_ns,
            below,
            ..TracedLayer::default()
        };
        let layer = layer("mirror:m0", 10, vec![layer("disk:d0", 9, Vec::new())]);
        let request = SlowRequest { id: 3, layer, ..SlowRequest::default() };
        let query = |slow_ns: u64, after: u64, lun: &str, geom: &str| {
            let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            TraceQuery { slow_ns, after: Some(after), lun: text(lun), geom: text(geom) }
        };
        for accepted in [query(10, 2, "m0", "d0"), query(1, 0, "", "disk:d0"), query(0, 2, "", "")]
        {
            assert!(accepted.accepts(&request), "{accepted:?}");
        }
        for refused in [
            query(11, 2, "", ""),
            query(1, 3, "", ""),
            query(1, 2, "m1", ""),
            query(1, 2, "", "d1"),
            TraceQuery::default(),
        ] {
            assert!(!refused.accepts(&request), "{refused:?}");
        }
    }
}
