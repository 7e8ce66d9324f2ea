//! Answers for the pages of files: documents without a script, and downloads as streams.
//!
//! A download is recorded in the audit log before its first byte is sent, and a comparison, which
//! shows lines of both files, before its page is. At most [`PIECES_QUEUED`] pieces wait for a slow
//! reader. The type and the disposition of a file make browsers save and never show it.

use super::body::Body;
use super::openapi::BYTES;
use super::page_routes::{HTML, restricted};
use super::routes::{blocking, record, reply};
use crate::api::{Error, Result};
use crate::audit::AuditedCaller;
use crate::file_service::FileReader;
use crate::page::files::{self, FilesQuery};
use crate::query_string::encode;
use crate::service::Control;
use hyper::body::Bytes;
use hyper::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, HeaderValue};
use hyper::{Response, StatusCode, Uri};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Pieces of a file on their way to a slow reader, at most; then the file is not read further.
const PIECES_QUEUED: usize = 4;

/// Longest name of a file that is proposed to a browser, in characters.
const NAME_CHARS_MAX: usize = 128;

/// These pages load only the style and icon of the page, and run nothing.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// A file may do nothing, even if a browser shows it.
const FILE_POLICY: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// A page without a script.
pub(super) fn document(text: String) -> Response<Body> {
    restricted(reply(HTML, text), POLICY, "no-store")
}

/// The answer to a request that was refused or has failed.
pub(super) fn refusal(error: &Error) -> Response<Body> {
    let mut response = document(files::refusal(error));
    let status = StatusCode::from_u16(error.kind.http());
    *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

fn query_of(uri: &Uri) -> FilesQuery {
    FilesQuery::parse(uri.query().unwrap_or(""))
}

/// A page of files.
///
/// # Errors
/// Those of [`files::render`].
pub(super) async fn page(uri: &Uri, control: Arc<Control>) -> Result<Response<Body>> {
    let (path, query) = (uri.path().to_owned(), query_of(uri));
    let text = blocking(move || files::render(control.plant().files(), &path, &query)).await?;
    Ok(document(text))
}

/// The page that compares two files.
///
/// # Errors
/// Those of [`files::render`].
pub(super) async fn comparison(
    uri: &Uri,
    control: Arc<Control>,
    by: AuditedCaller,
) -> Result<Response<Body>> {
    let FilesQuery { server, old, new, .. } = query_of(uri);
    let compared = page(uri, control.clone()).await;
    let named = json!({ "server": server, "old": old, "new": new });
    let end = compared.as_ref().map(|_| ());
    record(&control, by, files::COMPARE, named, end).await;
    compared
}

/// The contents of a file, for as long as the client reads and `is_allowed`.
///
/// # Errors
/// Those of [`crate::FileService::open`].
pub(super) async fn content(
    uri: &Uri,
    control: Arc<Control>,
    by: AuditedCaller,
    is_allowed: impl Fn(&Control) -> bool + Send + 'static,
) -> Result<Response<Body>> {
    let FilesQuery { server, path, .. } = query_of(uri);
    let named = json!({ "server": server, "path": path });
    let (from, name) = (control.clone(), disposition(&path));
    let opened = blocking(move || from.plant().files().open(&server, &path)).await;
    let end = opened.as_ref().map(|_| ());
    record(&control, by, files::CONTENT, named, end).await;
    let file = opened?;
    let mut response = reply(BYTES, "");
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(file.size()));
    headers.insert(CONTENT_DISPOSITION, name);
    *response.body_mut() = stream(file, control, is_allowed);
    Ok(restricted(response, FILE_POLICY, "no-store"))
}

/// The pieces of a file. If it ends early, the body is shorter than announced, and the connection
/// is closed: the client sees that the file is not whole.
fn stream(
    file: Box<dyn FileReader>,
    control: Arc<Control>,
    is_allowed: impl Fn(&Control) -> bool + Send + 'static,
) -> Body {
    let (sender, receiver) = mpsc::channel(PIECES_QUEUED);
    tokio::spawn(async move {
        let mut file = file;
        while is_allowed(&control) {
            let read = tokio::task::spawn_blocking(move || {
                let piece = file.read();
                (file, piece)
            });
            let Ok((rest, piece)) = read.await else { return };
            file = rest;
            match piece {
                Ok(bytes) if bytes.is_empty() => return,
                Ok(bytes) => {
                    if sender.send(Bytes::from(bytes)).await.is_err() {
                        return;
                    }
                }
                Err(e) => {
                    tracing::warn!("{}: the download ended early: {}", e.at, e.source);
                    return;
                }
            }
        }
    });
    Body::Lines(receiver)
}

/// The field that makes a browser save a file, with a name that is safe for every file system and
/// terminal (RFC 6266, RFC 8187).
fn disposition(path: &str) -> HeaderValue {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_safe = |c: char| c.is_alphanumeric() || " -_.,+@=()".contains(c);
    let safe = |c: char| if is_safe(c) { c } else { '_' };
    let visible = name.trim_start_matches('.').chars();
    let name: String = visible.take(NAME_CHARS_MAX).map(safe).collect();
    let name = if name.trim().is_empty() { "file".to_owned() } else { name };
    let ascii: String = name.chars().map(|c| if c.is_ascii() { c } else { '_' }).collect();
    let value = format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{}", encode(&name));
    HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_files::EVIL;

    #[test]
    fn names_of_downloads_are_safe_for_any_file() {
        let text = |path: &str| disposition(path).to_str().expect("ASCII").to_owned();
        let plain = "attachment; filename=\"a b.txt\"; filename*=UTF-8''a%20b.txt";
        assert_eq!(text("/lib/a b.txt"), plain);
        let evil = text(&format!("/x/{EVIL}"));
        assert!(evil.starts_with("attachment; filename=\"a__ _script_____.txt\"; "), "{evil}");
        assert!(evil.ends_with("''a__%20_script____%C3%A9.txt"), "{evil}");
        for path in ["", "/", "/x/..", "/x/.", "/x/\u{202e}"] {
            let value = text(path);
            assert!(!value.contains("..") && value.is_ascii(), "{value}");
        }
        assert!(text("/x/..").contains("filename=\"file\""));
        assert!(text(&"x".repeat(100_000)).len() < 1000);
    }
}
