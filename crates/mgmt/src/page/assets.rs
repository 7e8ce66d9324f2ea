//! Script, style and icon of the page, embedded in the program. `web/build.mjs` makes them.

/// Path of the script.
pub const SCRIPT: &str = "/assets/page.js";
/// Path of the style.
pub const STYLE: &str = "/assets/page.css";
/// Path of the icon.
pub const ICON: &str = "/assets/icon.svg";

/// Path, type and contents of each file.
const ASSETS: &[(&str, &str, &[u8])] = &[
    (SCRIPT, "text/javascript; charset=utf-8", include_bytes!("../../../../web/dist/page.js")),
    (STYLE, "text/css; charset=utf-8", include_bytes!("../../../../web/dist/page.css")),
    (ICON, "image/svg+xml", include_bytes!("../../../../web/dist/icon.svg")),
];

/// Type and contents of the file with that path.
pub fn asset(path: &str) -> Option<(&'static str, &'static [u8])> {
    ASSETS.iter().find(|(name, ..)| *name == path).map(|(_, kind, bytes)| (*kind, *bytes))
}
