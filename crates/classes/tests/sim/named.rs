//! What gmirror lost data by (geom.md 5.2), by name.
