//! Format of a scrape, which the client selects with `Accept`.

use hyper::HeaderMap;
use hyper::header::ACCEPT;

/// Content type of the text format.
pub const TEXT_TYPE: &str = "text/plain; version=0.0.4";

/// Content type of the protobuf format.
pub const PROTOBUF_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text, with classic histograms.
    #[default]
    Text,
    /// Protobuf, with classic and native histograms.
    Protobuf,
}

/// A media range of `Accept` (RFC 9110 12.5.1).
struct MediaRange<'a> {
    name: String,
    parameters: Vec<(String, &'a str)>,
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> MediaRange<'a> {
        let (name, rest) = text.split_once(';').unwrap_or((text, ""));
        let parameter = |text: &'a str| {
            let (key, value) = text.split_once('=')?;
            Some((key.trim().to_ascii_lowercase(), value.trim().trim_matches('"')))
        };
        let parameters = rest.split(';').filter_map(parameter).collect();
        MediaRange { name: name.trim().to_ascii_lowercase(), parameters }
    }

    fn parameter(&self, key: &str) -> Option<&str> {
        self.parameters.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// How much it is preferred, from 0 (not accepted) to 1.
    fn quality(&self) -> f32 {
        let quality = self.parameter("q").and_then(|q| q.parse::<f32>().ok());
        quality.map_or(1.0, |q| if q.is_nan() { 0.0 } else { q.clamp(0.0, 1.0) })
    }

    fn is_protobuf(&self) -> bool {
        self.name == "application/vnd.google.protobuf"
            && self.parameter("proto") == Some("io.prometheus.client.MetricFamily")
            && self.parameter("encoding") == Some("delimited")
    }
}

/// The quality of the most preferred one of some ranges.
fn quality_of(ranges: &[MediaRange<'_>], is: impl Fn(&MediaRange<'_>) -> bool) -> Option<f32> {
    ranges.iter().filter(|range| is(range)).map(MediaRange::quality).reduce(f32::max)
}

impl Format {
    /// The format that the client prefers. Protobuf must be named, because clients that accept
    /// everything do not read it.
    pub fn of(headers: &HeaderMap) -> Format {
        let fields = headers.get_all(ACCEPT).iter().filter_map(|field| field.to_str().ok());
        let ranges: Vec<MediaRange<'_>> =
            fields.flat_map(|field| field.split(',')).map(MediaRange::parse).collect();
        let protobuf = quality_of(&ranges, |range| range.is_protobuf()).unwrap_or(0.0);
        // The most specific range is valid.
        let mut names = ["text/plain", "text/*", "*/*"].into_iter();
        let text = names.find_map(|name| quality_of(&ranges, |range| range.name == name));
        if protobuf > 0.0 && protobuf >= text.unwrap_or(0.0) {
            return Format::Protobuf;
        }
        Format::Text
    }

    /// Its content type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::Text => TEXT_TYPE,
            Format::Protobuf => PROTOBUF_TYPE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn format(accept: &[&str]) -> Format {
        let mut headers = HeaderMap::new();
        for field in accept {
            headers.append(ACCEPT, HeaderValue::from_str(field).expect("a field"));
        }
        Format::of(&headers)
    }

    #[test]
    fn protobuf_is_sent_only_to_clients_that_name_and_prefer_it() {
        const NAMED: &str = "application/vnd.google.protobuf;\
                             proto=io.prometheus.client.MetricFamily;encoding=delimited";
        for accept in ["", "*/*", "text/plain", "application/openmetrics-text;version=1.0.0"] {
            assert_eq!(format(&[accept]), Format::Text, "{accept}");
        }
        assert_eq!(format(&[]), Format::Text);
        assert_eq!(format(&["application/vnd.google.protobuf"]), Format::Text);
        assert_eq!(format(&[&NAMED.replace("delimited", "text")]), Format::Text);
        // Prometheus with and without native histograms.
        let text = "text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(format(&[&format!("{NAMED},{text}")]), Format::Protobuf);
        assert_eq!(format(&[&format!("{NAMED};q=0.3,{text}")]), Format::Text);
        assert_eq!(format(&[&format!("{NAMED};q=0.3,*/*;q=0.2")]), Format::Protobuf);
        assert_eq!(format(&[text, NAMED]), Format::Protobuf, "fields are joined");
        assert_eq!(format(&[&format!("{NAMED};q=0")]), Format::Text);
        assert_eq!(format(&[&format!("{NAMED};q=nan,text/plain;q=x")]), Format::Text);
        assert_eq!(format(&[PROTOBUF_TYPE]), Format::Protobuf);
    }
}
