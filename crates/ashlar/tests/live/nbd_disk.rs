//! NBD disk of a daemon: its server is absent at the start, is away for longer than the deadline,
//! and comes back.

use std::process::Command;
use std::time::Duration;

use rig::proc::{self, Proc};

use crate::house::House;

const LIMIT: Duration = Duration::from_secs(60);

fn serve(house: &House) -> Proc {
    let socket = house.path("nbd.sock");
    let _absent = std::fs::remove_file(&socket);
    let mut command = Command::new(proc::tool("nbdkit").unwrap());
    command.args(["-f", "-U", socket.to_str().unwrap(), "file"]);
    command.arg(house.path("store.img"));
    Proc::start("nbdkit", &mut command, &house.path("nbdkit.log")).unwrap()
}

#[test]
fn disk_follows_the_arrival_loss_and_return_of_its_server() {
    let mut house = House::new("nbd-disk");
    house.image("store.img", 4 << 20);
    let at = house.path("nbd.sock");
    let disk = format!(
        "\n[[disk]]\nname = \"n0\"\nkind = \"nbd\"\naddress = \"unix:{}\"\ndeadline_s = 1\n",
        at.display()
    );
    house.configure(&disk, "0 = \"n0\"");
    house.start();
    let status = house.ashlar(&["status"]).ends(3);
    status.says(&["create disk n0", at.to_str().unwrap()]);
    let mut server = serve(&house);
    house.until("all is well", LIMIT, || house.ashlar(&["status"]).code == 0);
    assert!(house.provider("n0").is_some());
    server.kill().unwrap();
    house.until("the loss", LIMIT, || house.provider("n0").is_none());
    let _server = serve(&house);
    house.until("all is well again", LIMIT, || house.ashlar(&["status"]).code == 0);
    house.stop();
}
