//! Integration tests of the program `ashlar`, in one binary: daemons, tools of other projects and
//! guests. The tests wait for their turn, because each uses the whole machine.
//!
//! One module of them: `cargo test -p ashlar --test suite restart::`.

mod alua;
mod aoe_initiator;
mod attach;
mod bad_days;
mod bad_input;
mod cam;
mod cam_resets;
mod classes;
mod conformance;
mod daily;
mod deletes;
mod examples;
mod fileserver;
mod fileserver_console;
mod forged;
mod grown;
mod house;
mod iscsi_initiator;
mod iscsi_istgt;
mod lent;
mod limits;
mod live;
mod live_classes;
mod load;
mod local_bus;
mod local_cases;
mod moved_portals;
mod names;
mod nbd;
mod plan9_client;
mod processes;
mod real_aoe;
mod real_boot;
mod real_discard;
mod real_disk;
mod real_files;
mod real_image;
mod real_kernel;
mod real_layers;
mod real_live;
mod real_local;
mod real_multipath;
mod real_nbd;
mod real_nvme;
mod real_sg;
mod real_tap;
mod real_tools;
mod renewed_files;
mod reservations;
mod restart;
mod silent_portal;
mod trim;
mod two_ways;
