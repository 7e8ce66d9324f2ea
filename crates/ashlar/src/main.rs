#![forbid(unsafe_code)]
//! The `ashlar` binary: it lists the parts of this build and runs the control path.

use std::process::ExitCode;

use mgmt::{App, Plant};

const APP: App = App {
    version: env!("CARGO_PKG_VERSION"),
    catalog: daemon::catalog,
    classes: daemon::class_verbs,
    class: daemon::class_verbs_of,
    launch: |config| {
        daemon::sandbox::enter(config)?;
        let daemon = daemon::Daemon::start(&config.daemon)?;
        Ok(Box::new(daemon) as Box<dyn Plant>)
    },
};

fn main() -> ExitCode {
    daemon::fail_stop::install();
    let args = std::env::args_os().skip(1);
    // Not locked: the verb `serve` logs while it runs.
    let exit = mgmt::run(&APP, args, &mut std::io::stdout(), &mut std::io::stderr());
    ExitCode::from(exit as u8)
}
