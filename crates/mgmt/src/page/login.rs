//! Page with the login of a browser: a form for a token, and the logout.

use super::document::{begin, heading};
use super::html::Html;
use crate::api::Error;
use crate::query_string::{VALUE_BYTES_MAX, fields};

/// Path of the page, and of its form.
pub const LOGIN: &str = "/login";
/// Path of the logout.
pub const LOGOUT: &str = "/logout";

/// Fields of the form, and of a link to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginQuery {
    /// Text of the token; empty in a link.
    pub token: String,
    /// The page to show after the login.
    pub to: String,
}

impl LoginQuery {
    /// The fields of a query string or of a form; unknown ones are ignored.
    pub fn parse(query: &str) -> LoginQuery {
        let mut out = LoginQuery::default();
        for (key, value) in fields(query, VALUE_BYTES_MAX) {
            match key {
                "token" => out.token = value.trim().to_owned(),
                "to" => out.to = value,
                _ => {}
            }
        }
        out
    }
}

fn form(html: &mut Html, to: &str) {
    html.open("form", &[("id", "token"), ("method", "post"), ("action", LOGIN)]);
    html.void("input", &[("type", "hidden"), ("name", "to"), ("value", to)]);
    html.open("label", &[]);
    html.text("Token ");
    let kept = ("autocomplete", "off");
    html.void("input", &[("type", "password"), ("name", "token"), kept, ("required", "")]);
    html.close();
    html.element("button", &[], "Log in");
    html.close();
    html.open("p", &[]);
    html.text("This command on the server makes a token: ");
    html.element("code", &[], "ashlar token create NAME --role viewer");
    html.close();
}

/// The document with the login. `who`: name and role of the present caller; `has_cookie`: the
/// browser has the cookie of a session, which the logout removes.
pub fn login(to: &str, who: Option<(&str, &str)>, has_cookie: bool) -> String {
    let mut html = begin("Ashlar: log in", false);
    heading(&mut html, "login", "Log in");
    let text = match who {
        Some((name, role)) => format!("Logged in as {name} with the role {role}."),
        None => "The session of a token ends after 12 hours.".to_owned(),
    };
    html.element("p", &[("role", "status")], &text);
    if has_cookie {
        html.open("form", &[("method", "post"), ("action", LOGOUT)]);
        html.element("button", &[], "Log out");
        html.close();
    }
    form(&mut html, to);
    html.finish()
}

/// The document for a caller who may not see a page. `to`: the page to show after a login; absent
/// if a login does not help. `is_live`: its script shows the page after the login.
pub fn forbidden(error: &Error, to: Option<&str>, is_live: bool) -> String {
    let mut html = begin("Ashlar: no access", is_live);
    heading(&mut html, "status", "No access");
    html.element("p", &[("role", "alert")], &format!("{}: {}", error.op, error.source));
    html.element("p", &[], error.advice());
    if let Some(to) = to {
        form(&mut html, to);
    }
    html.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_has_a_form_and_for_a_session_the_logout() {
        let text = login("/files", None, false);
        assert!(text.contains("method=\"post\" action=\"/login\""), "{text}");
        assert!(text.contains("name=\"to\" value=\"/files\""), "{text}");
        assert!(!text.contains("action=\"/logout\"") && !text.contains("<script"), "{text}");
        let text = login("", Some(("token <b>", "viewer")), true);
        assert!(text.contains("Logged in as token &lt;b&gt; with the role viewer."), "{text}");
        assert!(text.contains("method=\"post\" action=\"/logout\""), "{text}");
    }

    #[test]
    fn form_is_read_as_a_browser_sends_it() {
        let query = LoginQuery::parse("to=%2F%3Fat%3Ddisk%253Ad0&token=+ashlar_1_2%0A&x=1");
        let (token, to) = ("ashlar_1_2".to_owned(), "/?at=disk%3Ad0".to_owned());
        assert_eq!(query, LoginQuery { token, to });
    }
}
