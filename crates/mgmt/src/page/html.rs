//! Writer of HTML and of the SVG in it: the only place that escapes text for the page.
//!
//! Tags and names of attributes are literals of the program. All other text passes [`push`], which
//! escapes it once: control and invisible characters first, then the characters of HTML.

use crate::text::escape_line;

/// Attributes of an element, each with its value.
pub type Attributes<'a> = &'a [(&'static str, &'a str)];

/// A document that is being written.
#[derive(Default)]
pub struct Html {
    out: String,
    open: Vec<&'static str>,
}

/// Appends a text of any origin.
fn push(out: &mut String, text: &str) {
    for c in escape_line(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            plain => out.push(plain),
        }
    }
}

impl Html {
    /// An empty document of HTML 5.
    pub fn document() -> Html {
        Html { out: "<!doctype html>".to_owned(), open: Vec::new() }
    }

    fn start(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.out.push('<');
        self.out.push_str(tag);
        for (name, value) in attributes {
            self.out.push(' ');
            self.out.push_str(name);
            self.out.push_str("=\"");
            push(&mut self.out, value);
            self.out.push('"');
        }
    }

    /// Opens an element; [`Self::close`] ends it.
    pub fn open(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.start(tag, attributes);
        self.out.push('>');
        self.open.push(tag);
    }

    /// Ends the element that was opened last.
    pub fn close(&mut self) {
        if let Some(tag) = self.open.pop() {
            self.out.push_str("</");
            self.out.push_str(tag);
            self.out.push('>');
        }
    }

    /// An element without contents: `link`, `input`, `rect`.
    pub fn void(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.start(tag, attributes);
        self.out.push_str("/>");
    }

    /// A text.
    pub fn text(&mut self, text: &str) {
        push(&mut self.out, text);
    }

    /// A line of a preformatted text.
    pub fn line(&mut self, text: &str) {
        push(&mut self.out, text);
        self.out.push('\n');
    }

    /// An element that contains only a text.
    pub fn element(&mut self, tag: &'static str, attributes: Attributes<'_>, text: &str) {
        self.open(tag, attributes);
        self.text(text);
        self.close();
    }

    /// The document, with the ends of all open elements.
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_are_escaped_once() {
        let evil = "<script>alert('&\"')</script>\u{202e}\n";
        let mut html = Html::default();
        html.open("p", &[("title", evil)]);
        html.element("b", &[], evil);
        let safe =
            "&lt;script&gt;alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;\\u{202e}\\n".to_owned();
        assert_eq!(html.finish(), format!("<p title=\"{safe}\"><b>{safe}</b></p>"));
    }

    #[test]
    fn open_elements_are_closed_at_the_end() {
        let mut html = Html::document();
        html.open("svg", &[]);
        html.open("g", &[]);
        html.void("rect", &[("width", "3")]);
        html.close();
        html.open("a", &[]);
        let text = html.finish();
        assert_eq!(text, "<!doctype html><svg><g><rect width=\"3\"/></g><a></a></svg>");
    }
}
