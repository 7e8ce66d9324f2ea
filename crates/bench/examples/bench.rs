//! The benchmark without the command line of the daemon:
//!
//! ```sh
//! cargo run --release -p ashlar-bench --example bench -- iscsi --case null-read-4k-d32 \
//!     --ashlar target/release/ashlar
//! ```

use std::process::ExitCode;

use bench::{Options, Peer, What};

fn main() -> ExitCode {
    let mut json = false;
    let options = match parse(std::env::args().skip(1), &mut json) {
        Ok(options) => options,
        Err(word) => {
            eprintln!("not understood: {word}");
            return ExitCode::from(2);
        }
    };
    let report = bench::run(options, &mut |p| eprintln!("[{}/{}] {}", p.done, p.of, p.what));
    match report {
        Ok(report) => {
            print!("{}", if json { report.json() } else { report.table() });
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>, json: &mut bool) -> Result<Options, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut options =
        Options { worker: vec![own.to_string_lossy().into_owned()], ..Options::default() };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} without a value"));
        let number = |text: String| text.parse::<u32>().map_err(|_| text);
        match word.as_str() {
            "all" => options.what = What::All,
            "layers" => options.what = What::Layers,
            "classes" => options.what = What::Classes,
            "iscsi" => options.what = What::Iscsi,
            "idle" => options.what = What::Idle,
            "luns" => options.what = What::Luns,
            "aoe" => options.what = What::Aoe,
            "bare" => options.what = What::Bare,
            "--interface" => options.interface = Some(value()?),
            "--case" => options.case = Some(value()?),
            "--rounds" => options.rounds = number(value()?)?,
            "--seconds" => options.seconds = number(value()?)?,
            "--idle-seconds" => options.idle_seconds = number(value()?)?,
            "--ashlar" => options.ashlar = Some(value()?),
            "--no-counters" => options.no_counters = true,
            "--no-peers" => options.no_peers = true,
            "--peers" => {
                options.peers = match value()?.as_str() {
                    "tgt" => vec![Peer::Tgt],
                    other => return Err(other.to_owned()),
                }
            }
            "--json" => *json = true,
            other => return Err(other.to_owned()),
        }
    }
    Ok(options)
}
