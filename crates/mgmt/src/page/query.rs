//! Query of the page: the search text and the selected object, and the link that repeats them.

use crate::query_string::{VALUE_BYTES_MAX, encode, fields};
use schemars::JsonSchema;
use serde::Serialize;

/// Search text and selected object of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ViewQuery")]
pub struct Query {
    /// Part of a name: only matching objects and those above and below them are drawn.
    pub find: String,
    /// Identifier of an object, as nodes have it: the object is shown in detail.
    pub at: String,
    /// Identifier of a folded node: its objects are drawn, or parts of them.
    pub unfold: String,
}

impl Query {
    /// The fields of a query string; unknown ones are ignored.
    pub fn parse(query: &str) -> Query {
        let mut out = Query::default();
        for (key, value) in fields(query, VALUE_BYTES_MAX) {
            match key {
                "find" => out.find = value.trim().to_owned(),
                "at" => out.at = value,
                "unfold" => out.unfold = value,
                _ => {}
            }
        }
        out
    }

    /// The link that unfolds a node of the same part of the graph.
    pub fn unfolding(&self, id: &str) -> String {
        let fields = [("find", self.find.as_str()), ("at", &self.at), ("unfold", id)];
        let given = fields.iter().filter(|(_, value)| !value.is_empty());
        let pairs = given.map(|(key, value)| format!("{key}={}", encode(value)));
        format!("/?{}", pairs.collect::<Vec<_>>().join("&"))
    }
}

/// The link to the detail of an object.
pub fn link(at: &str) -> String {
    format!("/?at={}", encode(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_fields_are_decoded_and_links_lead_back() {
        let query = Query::parse("find=+a%20b+&x=1&at=disk%3Ad0&find");
        let at = "disk:d0".to_owned();
        assert_eq!(query, Query { find: "a b".into(), at, unfold: String::new() });
        let link = query.unfolding("fold:1:disk");
        assert_eq!(link, "/?find=a%20b&at=disk%3Ad0&unfold=fold%3A1%3Adisk");
        let (_, again) = link.split_once('?').expect("a query");
        let unfold = "fold:1:disk".to_owned();
        assert_eq!(Query::parse(again), Query { unfold, ..query });
        for id in ["lun:iqn.a:t/all/0", "disk:ä&=?#%", "disk:\u{202e}\"<"] {
            let link = super::link(id);
            let (_, query) = link.split_once('?').expect("a query");
            assert_eq!(Query::parse(query).at, id);
            assert!(link.is_ascii(), "{link}");
        }
        assert_eq!(Query::parse("at=%4").at, "%4");
        assert_eq!(Query::parse("at=%zz%").at, "%zz%");
        let long = format!("find={}", "x".repeat(VALUE_BYTES_MAX + 1));
        assert_eq!(Query::parse(&long), Query::default());
    }
}
