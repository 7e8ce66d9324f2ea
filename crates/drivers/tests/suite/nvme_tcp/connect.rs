//! What Connect answers.

use serde_json::json;
use wire::nvme::Status;

use crate::nvme_tcp::host::SUBSYSTEM;
use crate::nvme_tcp::stage::play_with;

#[test]
fn controller_identifiers_are_of_the_range_and_belong_to_one_controller() {
    let params = json!({ "controller_id_min": 40, "controller_id_max": 41 });
    play_with(params, |stage| async move {
        let first = stage.admin((false, false), 0).await;
        let second = stage.admin((false, false), 0).await;
        let mut numbers = [first.controller, second.controller];
        numbers.sort_unstable();
        assert_eq!(numbers, [40, 41]);
        let mut third = stage.dial().await;
        third.initialize((false, false)).await.unwrap();
        let end = third.connect(SUBSYSTEM, 0, 0).await.unwrap();
        // Connect Controller Busy, without DNR: the host may try again.
        assert_eq!((end.status, end.status.0, end.result), (Status::CONNECT_BUSY, 0x181, 0));
        // The number of a controller that has ended is free.
        first.close();
        stage.seconds(1).await;
        let end = third.connect(SUBSYSTEM, 0, 0).await.unwrap();
        assert!(end.status.is_good(), "{end:x?}");
        assert_eq!(third.controller, first.controller);
    });
}
