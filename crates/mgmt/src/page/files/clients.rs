//! The 9P clients of a file server, with the command that closes the connection of each.

use super::{Cell, ask, command, heading, table};
use crate::api::Result;
use crate::config::units::short;
use crate::file_service::FileService;
use crate::page::html::Html;
use crate::text::{or_dash, shell_word};
use serde::Deserialize;
use serde_json::json;

/// Clients that are listed, at most.
const CLIENTS_MAX: usize = 200;

/// The answer of `fs who`.
#[derive(Deserialize)]
struct Who {
    who: Vec<Client>,
}

#[derive(Deserialize)]
struct Client {
    connection: u64,
    peer: String,
    users: Vec<String>,
    fids: u64,
    open: u64,
    requests: u64,
    read: u64,
    written: u64,
}

/// The section of the page.
pub(super) fn section(html: &mut Html, files: &dyn FileService, server: &str) -> Result<()> {
    let clients = ask::<Who>(files, server, "who", &json!({}))?.who;
    heading(html, "clients", &format!("Clients of {server}"));
    let shown = clients.get(..CLIENTS_MAX).unwrap_or(&clients);
    html.element("p", &[], &format!("{} of {} clients.", shown.len(), clients.len()));
    let row = |client: &Client| {
        let number = client.connection.to_string();
        let hangup = format!("ashlar fs hangup {} {number}", shell_word(server));
        let users = or_dash(&client.users.join(", "));
        let counts = [client.fids, client.open, client.requests].map(|count| count.to_string());
        let bytes = [client.read, client.written].map(short);
        let texts = [number, client.peer.clone(), users].into_iter().chain(counts).chain(bytes);
        texts.chain([hangup]).map(Cell::text).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<Cell>> = shown.iter().map(row).collect();
    let columns = [
        ">connection",
        "address",
        "users",
        ">fids",
        ">open files",
        ">requests",
        ">read",
        ">written",
        "to close it",
    ];
    table(html, "clients", &columns, &rows);
    command(html, &["who", server]);
    html.close();
    Ok(())
}
