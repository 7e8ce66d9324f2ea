//! Drivers of buses, one file or folder each.

use std::sync::Arc;

use crate::kind::SimKind;

pub mod aoe;
pub mod hba;
pub mod iscsi;
mod numbers;
pub mod sg;

/// The kinds of SIMs that a configuration may name.
pub fn kinds() -> Vec<Arc<dyn SimKind>> {
    vec![
        Arc::new(hba::HbaKind),
        Arc::new(aoe::AoeKind),
        Arc::new(iscsi::IscsiKind),
        Arc::new(sg::SgKind),
    ]
}
