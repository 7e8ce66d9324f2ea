//! Seeds that found something once.
