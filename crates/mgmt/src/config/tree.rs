//! The document with the place of every key and value, so that every fault can show its line.

use super::mask::mask_secrets;
use std::ops::Range;
use toml_edit::{Document, Item, TableLike, Value};

/// Whether a text is a value of TOML, quoted texts among them.
pub fn is_value(text: &str) -> bool {
    text.parse::<Value>().is_ok()
}

/// Bytes of the text that something was read from.
pub type Span = Range<usize>;

/// One value and its place in the text.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where.
    pub span: Span,
    /// What.
    pub value: Tree,
}

/// One key of a table.
#[derive(Clone, Debug)]
pub struct Field {
    /// The key.
    pub key: String,
    /// Place of the key.
    pub key_span: Span,
    /// Its value.
    pub node: Node,
}

/// The forms of a value.
#[derive(Clone, Debug)]
pub enum Tree {
    /// A table, also an inline one, in the order of the file.
    Table(Vec<Field>),
    /// An array, also of tables.
    Array(Vec<Node>),
    /// A text.
    Text(String),
    /// A number without a point.
    Int(i64),
    /// A number with a point.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A date or time, as written. Nothing in Ashlar takes one.
    Date(String),
}

impl Tree {
    /// The usual noun for this form.
    pub fn noun(&self) -> &'static str {
        match self {
            Tree::Table(_) => "a table",
            Tree::Array(_) => "a list",
            Tree::Text(_) => "a text",
            Tree::Int(_) => "a number",
            Tree::Float(_) => "a decimal number",
            Tree::Bool(_) => "true or false",
            Tree::Date(_) => "a date",
        }
    }
}

impl Node {
    /// The value of a key, when this is a table that has it.
    pub fn get(&self, key: &str) -> Option<&Field> {
        match &self.value {
            Tree::Table(fields) => fields.iter().find(|f| f.key == key),
            _ => None,
        }
    }

    /// The element of a list; a value that is no list is its own only element.
    pub fn element(&self, index: usize) -> Option<&Node> {
        match &self.value {
            Tree::Array(list) => list.get(index),
            _ => (index == 0).then_some(self),
        }
    }

    /// The text, when it is one.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Reads a document.
///
/// # Errors
/// The fault and its place, as the TOML reader reports them.
pub fn parse(text: &str) -> Result<Node, (Span, String)> {
    let document = Document::parse(text)
        .map_err(|e| (e.span().unwrap_or(0..0), e.message().trim().to_owned()))?;
    Ok(Node { span: 0..text.len(), value: table(document.as_table()) })
}

fn table(from: &dyn TableLike) -> Tree {
    let field = |(name, item): (&str, &Item)| {
        let key_span = from.key(name).and_then(|k| k.span()).unwrap_or(0..0);
        let node = node(item, &key_span);
        Field { key: name.to_owned(), key_span, node }
    };
    Tree::Table(from.iter().map(field).collect())
}

/// `near` is where to point when the library knows no place (tables written with dotted keys).
fn node(item: &Item, near: &Span) -> Node {
    let span = item.span().unwrap_or_else(|| near.clone());
    let value = match item {
        Item::None => Tree::Table(Vec::new()),
        Item::Value(value) => return self::value(value, near),
        Item::Table(inner) => table(inner),
        Item::ArrayOfTables(list) => {
            let one = |t: &toml_edit::Table| Node {
                span: t.span().unwrap_or_else(|| span.clone()),
                value: table(t),
            };
            Tree::Array(list.iter().map(one).collect())
        }
    };
    Node { span, value }
}

fn value(from: &Value, near: &Span) -> Node {
    let span = from.span().unwrap_or_else(|| near.clone());
    let value = match from {
        Value::String(s) => Tree::Text(s.value().clone()),
        Value::Integer(n) => Tree::Int(*n.value()),
        Value::Float(x) => Tree::Float(*x.value()),
        Value::Boolean(b) => Tree::Bool(*b.value()),
        Value::Datetime(d) => Tree::Date(d.value().to_string()),
        Value::Array(list) => Tree::Array(list.iter().map(|v| self::value(v, &span)).collect()),
        Value::InlineTable(inner) => table(inner),
    };
    Node { span, value }
}

/// Line and column, both from 1, of a byte of `text`; columns count characters.
pub fn line_and_column(text: &str, byte: usize) -> (usize, usize) {
    let mut end = byte.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = text.get(..end).unwrap_or("");
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    let column = before.get(line_start..).unwrap_or("").chars().count() + 1;
    (before.matches('\n').count() + 1, column)
}

/// The line with a caret under the span; secrets in it are asterisks, as errors are logged:
/// ```text
///   |
/// 7 | blance = "load"
///   | ^^^^^^
/// ```
pub fn caret(text: &str, span: &Span) -> String {
    let (line, column) = line_and_column(text, span.start);
    let masked = mask_secrets(text);
    let content = masked.lines().nth(line - 1).unwrap_or("");
    let printed: String = content.chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
    let rest = printed.chars().count().saturating_sub(column - 1).max(1);
    let marked = text.get(span.clone()).map_or(1, |s| s.chars().count());
    let number = line.to_string();
    let pad = " ".repeat(number.len());
    let blank = " ".repeat(column - 1);
    let marks = "^".repeat(marked.clamp(1, rest));
    format!("{pad} |\n{number} | {printed}\n{pad} | {blank}{marks}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caret_marks_the_key() {
        let text = "[[disk]]\nname = \"a\"\n\tblance = \"loäd\" # x\n";
        let root = parse(text).expect("well-formed");
        let disk = root.get("disk").and_then(|d| d.node.element(0)).expect("a disk");
        let field = disk.get("blance").expect("the key");
        assert_eq!(line_and_column(text, field.key_span.start), (3, 2));
        assert_eq!(caret(text, &field.key_span), "  |\n3 |  blance = \"loäd\" # x\n  |  ^^^^^^");
        assert_eq!(
            caret(text, &field.node.span),
            "  |\n3 |  blance = \"loäd\" # x\n  |           ^^^^^^"
        );
    }

    #[test]
    fn syntax_errors_have_a_position() {
        let (span, message) = parse("a = \n").expect_err("no value");
        assert!(span.start <= 5 && !message.is_empty());
    }
}
