//! The page over the socket of the daemon.

use super::busy;
use super::daemon::Daemon;
use super::http::raw;
use crate::api::Exit;
use crate::fake_files::EVIL;

fn get(daemon: &Daemon, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    raw(daemon, request.as_bytes())
}

#[test]
fn page_is_served_with_a_policy_that_allows_only_its_own_files() {
    let daemon = Daemon::start();
    busy(&daemon);
    let text = get(&daemon, "/?at=disk%3Ad0");
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    assert!(text.contains("content-security-policy: default-src 'none'; "), "{text}");
    assert!(text.contains("content-type: text/html; charset=utf-8"), "{text}");
    assert!(text.contains("<h2 id=\"detail\">disk d0</h2>"), "{text}");
    let style = get(&daemon, "/assets/page.css");
    assert!(style.starts_with("HTTP/1.1 200 ") && style.contains("text/css"), "{style}");
    let lost = get(&daemon, "/assets/none.js");
    assert!(lost.starts_with("HTTP/1.1 404 "), "{lost}");
    let wrong = raw(&daemon, b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(wrong.starts_with("HTTP/1.1 405 "), "{wrong}");
}

#[test]
fn view_of_the_page_is_json_and_follows_one_disk() {
    let daemon = Daemon::start();
    busy(&daemon);
    let client = daemon.client();
    let whole = client.get("/v1/view").expect("a view");
    let part = client.get("/v1/view?at=disk%3Am0").expect("a view");
    let nodes = |view: &serde_json::Value| -> Vec<String> {
        let all = view["graph"]["nodes"].as_array().expect("nodes").iter();
        all.map(|node| node["id"].as_str().expect("an identifier").to_owned()).collect()
    };
    let ids = nodes(&whole);
    assert!(ids.contains(&"disk:d0".to_owned()), "{ids:?}");
    let ids = nodes(&part);
    assert!(ids.contains(&"disk:m0".to_owned()) && !ids.contains(&"disk:d0".to_owned()), "{ids:?}");
    assert!(ids.contains(&"lun:iqn.a:t/hosts/1".to_owned()), "{ids:?}");
    assert_eq!(part["detail"]["title"], "disk m0");
    let text = get(&daemon, "/v1/view");
    assert!(text.contains("\r\nserver-timing: view;dur="), "{text}");
}

#[test]
fn schema_of_the_configuration_has_the_keys_of_each_kind() {
    let daemon = Daemon::start();
    let schema = daemon.client().get("/v1/schema").expect("a schema");
    let kinds = schema["$defs"]["DiskConfig"]["oneOf"].as_array().expect("the kinds");
    let file = kinds.iter().find(|kind| kind["properties"]["kind"]["const"] == "file");
    assert!(file.expect("the kind")["properties"]["path"].is_object(), "{schema}");
}

#[test]
fn change_by_the_page_of_another_site_is_refused() {
    let daemon = Daemon::start();
    let text = raw(
        &daemon,
        b"POST /v1/verbs/undo HTTP/1.1\r\nhost: a\r\nsec-fetch-site: cross-site\r\n\
          connection: close\r\ncontent-length: 2\r\n\r\n{}",
    );
    assert!(text.starts_with("HTTP/1.1 403 ") && text.contains("another site"), "{text}");
}

#[test]
fn pages_of_files_run_no_script_and_downloads_are_recorded() {
    let daemon = Daemon::start();
    let text = get(&daemon, "/files/folder?server=main");
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    assert!(text.contains("content-security-policy: default-src 'none'; style-src 'self'"));
    assert!(!text.contains("script-src") && !text.contains("<script"), "{text}");
    let lost = get(&daemon, "/files/folder?server=other");
    assert!(lost.starts_with("HTTP/1.1 404 ") && lost.contains("role=\"alert\""), "{lost}");
    assert!(!daemon.expect_exit("audit", Exit::Done).contains("/files/content"));

    let path = crate::query_string::encode(&format!("/x/{EVIL}"));
    let text = get(&daemon, &format!("/files/content?server=main&path={path}"));
    assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\nfirst\nsecond <b>\n"));
    for field in [
        "content-type: application/octet-stream\r\n",
        "content-length: 17\r\n",
        "content-disposition: attachment; filename=\"a__ _script_____.txt\"; filename*=UTF-8''",
        "x-content-type-options: nosniff\r\n",
        "content-security-policy: default-src 'none'; sandbox",
        "cross-origin-resource-policy: same-origin\r\n",
    ] {
        assert!(text.contains(field), "{field}: {text}");
    }
    let empty = get(&daemon, "/files/content?server=main&path=%2Fempty");
    assert!(empty.contains("content-length: 0\r\n"), "{empty}");
    let lost = get(&daemon, "/files/content?server=main&path=%2Fnone");
    assert!(lost.starts_with("HTTP/1.1 404 "), "{lost}");
    let listed = daemon.expect_exit("audit --json", Exit::Done);
    assert_eq!(listed.matches("/files/content").count(), 3, "{listed}");
    assert!(listed.contains("/none"), "{listed}");

    let old = crate::query_string::encode(&format!("/dump/2026/1121/{EVIL}"));
    let text = get(&daemon, &format!("/files/compare?server=main&old={old}&new={path}"));
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    let lost = get(&daemon, "/files/compare?server=other&old=%2Fa&new=%2Fb");
    assert!(lost.starts_with("HTTP/1.1 404 "), "{lost}");
    let listed = daemon.expect_exit("audit --json", Exit::Done);
    assert_eq!(listed.matches("/files/compare").count(), 2, "{listed}");
}

#[test]
fn download_of_a_file_that_changes_is_visibly_not_whole() {
    let daemon = Daemon::start();
    let text = get(&daemon, "/files/content?server=main&path=%2Fchanging");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("content-length: 17") && body.len() < 17, "{text}");
}

#[test]
fn access_matrix_is_a_page_without_a_script() {
    let daemon = Daemon::start();
    busy(&daemon);
    let text = get(&daemon, "/access");
    assert!(text.starts_with("HTTP/1.1 200 ") && !text.contains("<script"), "{text}");
    assert!(text.contains("Initiators by LUNs of iqn.a:t"), "{text}");
    let text = get(&daemon, "/access?initiator=nobody");
    assert!(text.contains("no group matches"), "{text}");
}

#[test]
fn login_is_a_page_without_a_script_that_the_control_socket_does_not_need() {
    let daemon = Daemon::start();
    let text = get(&daemon, "/login?to=%2Ffiles");
    assert!(text.starts_with("HTTP/1.1 200 ") && !text.contains("<script"), "{text}");
    assert!(text.contains("Logged in as uid ") && text.contains("value=\"/files\""), "{text}");
    let post = |path: &str, more: &str, body: &str| {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{more}\
             content-length: {length}\r\n\r\n{body}"
        );
        raw(&daemon, request.as_bytes())
    };
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let text = post("/login", form, "token=ashlar_1_2&to=%2F");
    assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("user id"), "{text}");
    assert!(!text.contains("set-cookie"), "{text}");
    let text = post("/login", "content-type: text/plain\r\n", "token=x");
    assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("text/plain"), "{text}");
    let foreign = format!("{form}sec-fetch-site: cross-site\r\n");
    for path in ["/login", "/logout"] {
        let text = post(path, &foreign, "token=x");
        assert!(text.starts_with("HTTP/1.1 403 ") && text.contains("another site"), "{text}");
    }
    let text = post("/logout", form, "");
    assert!(text.starts_with("HTTP/1.1 303 ") && text.contains("location: /login"), "{text}");
    let text = get(&daemon, "/logout");
    assert!(text.starts_with("HTTP/1.1 405 "), "{text}");
}

#[test]
fn change_with_a_session_needs_its_origin_and_type() {
    let daemon = Daemon::start();
    let post = |more: &str| {
        let request = format!(
            "POST /v1/verbs/undo HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
             cookie: ashlar-session=x\r\n{more}\r\n"
        );
        raw(&daemon, request.as_bytes())
    };
    let json = "content-type: application/json\r\n";
    let text = post(json);
    assert!(text.starts_with("HTTP/1.1 403 ") && text.contains("another site"), "{text}");
    let own = "origin: http://localhost:8080\r\n";
    let text = post(own);
    assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("content type"), "{text}");
    let text = post(&format!("{own}{json}"));
    assert!(!text.starts_with("HTTP/1.1 403 ") && !text.contains("content type"), "{text}");
}
