//! bio
