//! Lines of a document that can be shown in an error and in a log: secrets that are written out in
//! them are asterisks.

use super::secret::is_literal;

/// Keys of accounts: every text of theirs may be a secret, but for the name of the user. A key in
/// them that is misspelled is a reason for an error too.
const ACCOUNTS: [&str; 5] = ["chap", "mutual", "mutual_chap", "discovery_chap", "initiator_chap"];

/// The document with asterisks in place of secrets, character by character, so that places in it
/// stay. It may be no TOML: faults of syntax are shown too, and in doubt more is masked.
pub(super) fn mask_secrets(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // The key that was read last, and how many tables of accounts are open.
    let (mut key, mut open) = ("", 0_usize);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (visible, hidden) = match c {
            '[' if begins_line(&out) => {
                let head = line_of(rest);
                open = usize::from(names_account(head));
                (head.len(), 0)
            }
            '#' => match line_of(rest) {
                remark if remark.contains("secret") => (0, remark.len()),
                remark => (remark.len(), 0),
            },
            '=' => {
                let value = unpadded(rest.get(1..).unwrap_or(""));
                let before = rest.len() - value.len();
                if value.starts_with('{') && !is_secret_key(key) {
                    open += usize::from(open > 0 || names_account(key));
                    (before + 1, 0)
                } else if is_secret(key, open > 0) {
                    let (visible, hidden) = hidden_part(value);
                    (before + visible, hidden)
                } else if open > 0 && !ends_well(value) {
                    // A quote of the user's name is missing: what follows may be the secret.
                    (before, line_of(value).len())
                } else {
                    (before, 0)
                }
            }
            '{' => {
                open += usize::from(open > 0);
                (1, 0)
            }
            '}' => {
                open = open.saturating_sub(1);
                (1, 0)
            }
            '"' | '\'' => {
                let token = quoted(rest);
                // One that has no end would hide the rest of the document from this reader.
                let token = if token.len() == rest.len() { line_of(rest) } else { token };
                key = token.trim_matches(['"', '\'']);
                (token.len(), 0)
            }
            c if is_of_key(c) => {
                let end = rest.find(|c: char| !is_of_key(c)).unwrap_or(rest.len());
                key = rest.get(..end).unwrap_or("");
                let behind = rest.get(end..).unwrap_or("");
                let is_key = unpadded(behind).starts_with('=');
                match is_secret_key(key) && !is_key {
                    true => (end, line_of(behind).len()),
                    false => (end, 0),
                }
            }
            c => (c.len_utf8(), 0),
        };
        let end = visible + hidden;
        out.push_str(rest.get(..visible).unwrap_or(""));
        let secret = rest.get(visible..end).unwrap_or("");
        out.extend(secret.chars().map(|c| if matches!(c, '\n' | '\r') { c } else { '*' }));
        rest = rest.get(end..).unwrap_or("");
    }
    out
}

/// Whether a text is followed by what may follow one.
fn ends_well(value: &str) -> bool {
    let token = quoted(value);
    let next = unpadded(value.get(token.len()..).unwrap_or(""));
    let ends = next.is_empty() || next.starts_with([',', '}', ']', '#', '\r', '\n']);
    token.is_empty() || ends
}

/// How much of a secret's value is shown, and how much behind that is hidden, in bytes.
fn hidden_part(value: &str) -> (usize, usize) {
    let token = quoted(value);
    let behind = value.get(token.len()..).unwrap_or("");
    if token.is_empty() || !ends_well(value) {
        // No text, or one with a quote in it: the secret may continue to the end of the line.
        return (0, token.len() + line_of(behind).len());
    }
    match is_literal(token.trim_start_matches(['"', '\''])) {
        true => (0, token.len()),
        false => (token.len(), 0),
    }
}

/// The quoted text at the beginning, with its quotes; empty when there is none. When its end is
/// missing it ends with the line, or one of several lines with the document.
fn quoted(text: &str) -> &str {
    let marks = ["\"\"\"", "'''", "\"", "'"];
    let Some(mark) = marks.into_iter().find(|mark| text.starts_with(*mark)) else { return "" };
    let inner = text.get(mark.len()..).unwrap_or("");
    let inner = if mark.len() == 1 { line_of(inner) } else { inner };
    let mut escaped = false;
    let end = inner.char_indices().find_map(|(at, c)| {
        let rest = inner.get(at..).unwrap_or("");
        let closes = !escaped && rest.starts_with(mark);
        escaped = c == '\\' && !escaped && mark.starts_with('"');
        closes.then_some(at + mark.len())
    });
    text.get(..mark.len() + end.unwrap_or(inner.len())).unwrap_or(text)
}

fn is_secret(key: &str, in_account: bool) -> bool {
    is_secret_key(key) || ((in_account || names_account(key)) && last_part(key) != "user")
}

/// Whether the value of a key is a secret in every section.
fn is_secret_key(key: &str) -> bool {
    // The path of the URL of a webhook may be one.
    ["secret", "metrics_token", "url"].contains(&last_part(key))
}

/// Whether a key, or the heading of a table, has that of an account among its parts.
fn names_account(key: &str) -> bool {
    key.split(|c: char| !is_of_key(c) || c == '.').any(|part| ACCOUNTS.contains(&part))
}

fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn begins_line(before: &str) -> bool {
    let before = before.trim_end_matches([' ', '\t']);
    before.is_empty() || before.ends_with('\n')
}

fn unpadded(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

/// Up to the end of the line, without it.
fn line_of(text: &str) -> &str {
    text.split(['\r', '\n']).next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_that_are_written_out_are_masked() {
        for (line, masked) in [
            ("secret = \"a b\" # x", "secret = ***** # x"),
            ("secret = 'file:/x'", "secret = 'file:/x'"),
            ("chap = { user = \"u\", secret = 'ä\"c' }", "chap = { user = \"u\", secret = ***** }"),
            ("chap = { secrte = 'abc', user = 'u' }", "chap = { secrte = *****, user = 'u' }"),
            ("mutual = \"abc\"", "mutual = *****"),
            ("chap = { user = 'u, secret = 'abc' }", "chap = { user = ********************"),
            ("chap = { user = 'u', secret: 'abc' }", "chap = { user = 'u', secret*********"),
            ("chap = { user = 'u', secret 'abc' }", "chap = { user = 'u', secret********"),
            ("chap.secret = 'abc'", "chap.secret = *****"),
            ("\"secret\" = 'abc'", "\"secret\" = *****"),
            ("secret = correct horse, x", "secret = ****************"),
            ("secret = 'it's mine'", "secret = ***********"),
            ("secret = \"a\\\"b\", user = 'u'", "secret = ******, user = 'u'"),
            ("secret = \"open", "secret = *****"),
            ("secret = '''a\nb'''\nuser = 'u'", "secret = ****\n****\nuser = 'u'"),
            ("[target.chap]\nuser = 'u'\nsecrte = 'a'", "[target.chap]\nuser = 'u'\nsecrte = ***"),
            (
                "initiator_chap = {'iqn.h:1' = {user = 'b', secret = 'x'}}\nname = 'n'",
                "initiator_chap = {'iqn.h:1' = {user = 'b', secret = ***}}\nname = 'n'",
            ),
            ("# secret = 'old'", "****************"),
            ("metrics_token = 'abc' # x", "metrics_token = ***** # x"),
            ("metrics_token = 'file:/x'", "metrics_token = 'file:/x'"),
            ("url = 'https://a/b#c'", "url = ***************"),
            ("name = 'secret' # it's one", "name = 'secret' # it's one"),
            ("chap_algorithms = ['md5']", "chap_algorithms = ['md5']"),
        ] {
            assert_eq!(mask_secrets(line), masked);
        }
    }
}
