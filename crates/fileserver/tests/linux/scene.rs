//! Test scene: a server, a guest that has its files and its dumps mounted, and the guest's script.

use std::time::Duration;

use rig::guest::{Boot, HOST, Run, Script, SharedGuest};
use rig::proc::Scratch;

use super::plant::{On, Plant};

/// The day of every dump.
const TODAY: u32 = 20_261_121;

/// What git has to know.
const GIT: &str = "export HOME=/tmp; git config --global user.email a@b
    git config --global user.name a; git config --global gc.auto 0
    git config --global --add safe.directory '*'";

/// See the module.
pub struct Scene {
    /// Commands of the guest. When it prints `TAKE-A-DUMP` it gets the place of the dump.
    pub script: Script,
    pub scratch: Scratch,
    plant: Plant,
    on: On,
}

fn mount(plant: &Plant, place: &str, aname: &str) -> String {
    let port = plant.at.port();
    format!(
        "mkdir -p {place}; mount -t 9p -o trans=tcp,port={port},version=9p2000 \
         -o msize=131096,uname=bootes,aname={aname} {HOST} {place}\n"
    )
}

impl Scene {
    /// On new devices. Files are mounted at `/n/main`, dumps at `/n/dump`.
    pub fn new(name: &str, on: On) -> Scene {
        let scratch = Scratch::new(name).unwrap();
        let plant = Plant::start(scratch.path(), on, true);
        let mut script = Script::new();
        let mounts = mount(&plant, "/n/main", "") + &mount(&plant, "/n/dump", "dump");
        script.step("mount", format!("{mounts}{GIT}"));
        Scene { script, scratch, plant, on }
    }

    /// Another server on the same devices, and a guest that looks at nothing but the dumps.
    pub fn again(self) -> Scene {
        self.plant.close();
        let plant = Plant::start(self.scratch.path(), self.on, false);
        let mut script = Script::new();
        script.step("mount", mount(&plant, "/n/dump", "dump"));
        Scene { script, plant, ..self }
    }

    /// The guest must do all of it.
    pub fn play(&self, guest: &mut SharedGuest) -> Run {
        let how = Boot { deadline: Duration::from_secs(600), core: None };
        let run = guest
            .run(&self.script, how, &mut |line, console| {
                if line.contains("TAKE-A-DUMP") {
                    console.send(&self.plant.dump(TODAY))?;
                }
                Ok(())
            })
            .unwrap();
        eprintln!("{}", run.summary());
        run.expect_ok().unwrap();
        run
    }

    /// Ends the server in order.
    pub fn close(self) {
        self.plant.close();
    }
}
