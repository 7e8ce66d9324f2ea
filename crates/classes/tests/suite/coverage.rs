//! Table of test coverage: FreeBSD's own tests of the classes (docs/reference/geom.md 6), mistakes
//! of reimplementations (7) and faults that cost users data (5), each with the tests here that
//! cover it. A row whose test has been removed, or renamed, fails.

use std::path::Path;

/// The subject, the file below `crates`, and the tests in it.
type Row = (&'static str, &'static str, &'static [&'static str]);

/// `tests/sys/geom/class`, for mirror, stripe, concat, multipath and part. Upstream has none for
/// graid. Not here: `part zoned` (there are no zoned disks), `nop` and `gate` (other classes').
const FREEBSD: &[Row] = &[
    ("concat 1, 2", SPAN, &["concat_1_and_2_the_size_is_the_sum_and_data_reads_back"]),
    (
        "concat append1, append2",
        SPAN,
        &["concat_append_1_and_2_size_grows_while_open_and_the_label_is_kept"],
    ),
    (
        "stripe 1, 2",
        SPAN,
        &["stripe_1_and_2_the_smallest_member_sets_the_size_and_data_reads_back"],
    ),
    ("mirror 1", MIRROR, &["mirror_1_the_size_is_the_smallest_less_a_sector"]),
    ("mirror 2", MIRROR, &["mirror_2_data_is_on_every_member"]),
    // Upstream's last two checks cannot fail; here the last member stays and the device is removed.
    (
        "mirror 3, 4, 5, 7",
        MIRROR,
        &["mirror_3_to_7_data_stays_correct_as_members_are_removed_one_by_one"],
    ),
    ("mirror 6", MIRROR, &["mirror_6_an_inserted_third_member_receives_all_data"]),
    ("mirror 8", NAMED, &["r317712_a_late_dirty_member_is_rebuilt_first"]),
    ("mirror 9", ERRORS, &["mirror_9_forget_insert_stop_activate_after_a_failed_record_write"]),
    ("mirror 10", ERRORS, &["mirror_10_eio_on_read"]),
    ("mirror 11", ERRORS, &["mirror_11_enxio_on_read"]),
    ("mirror 12", ERRORS, &["mirror_12_eio_on_write"]),
    ("mirror 13", ERRORS, &["mirror_13_enxio_on_write"]),
    (
        "mirror component_selection",
        MIRROR,
        &["component_selection_uses_the_newest_members_in_any_order"],
    ),
    (
        "mirror sync_error, and the write error that it lacks",
        ERRORS,
        &[
            "sync_error_the_only_source_cannot_be_read",
            "sync_error_one_of_two_sources_cannot_be_read",
            "sync_error_the_target_cannot_be_written",
        ],
    ),
    (
        "multipath misc",
        PATHS,
        &[
            "misc_add_a_path_by_hand",
            "misc_create_in_every_mode",
            "misc_a_path_departs_and_arrives",
            "misc_fail_restore_prefer_rotate_getactive",
            "misc_fail_on_error",
            "misc_restore_on_error_when_all_have_failed",
            "misc_physpath_and_other_properties_of_the_disk",
        ],
    ),
    (
        "multipath failloop",
        PATHS,
        &["failloop_a_persistent_error_ends_and_restores_no_failed_path"],
    ),
    (
        "part misc",
        "classes/tests/suite/part_physpath.rs",
        &[
            "misc_partitions_of_a_disk_without_a_physpath_have_none",
            "misc_each_scheme_adds_its_own_suffix",
            "misc_a_disklabel_in_an_mbr_appends_both_suffixes",
        ],
    ),
    (
        "gpt gctl",
        VERBS,
        &[
            "a_gpt_is_created_edited_and_destroyed",
            "two_phases",
            "create_overwrites_existing_content_only_on_request",
        ],
    ),
    (
        "geom_gpt gctl_test.t, request by request",
        "classes/tests/suite/part_gctl.rs",
        &[
            "gctl_000_to_025_verbs_and_create",
            "gctl_030_to_054_add_and_remove",
            "gctl_060_to_065_a_partition_in_use_stays",
            "gctl_100_to_120_a_gpt_without_its_backup_is_not_edited",
        ],
    ),
    (
        "gpt gctl, refusals",
        "classes/tests/suite/part_edit.rs",
        &["additions_refused", "open_partitions_are_guarded"],
    ),
    (
        "geom MdLoad, ConfCmp",
        "classes/tests/suite/part_tools.rs",
        &["sfdisk_gpt_is_read", "mbr_with_logical_partitions_is_read_and_accepted"],
    ),
];

/// The fifteen (7), as far as these classes have a part in them.
const BEHAVIOURS: &[Row] = &[
    (
        "1 access: a partition's w is w and e below",
        TASTE,
        &["opening_the_disk_for_writing_removes_its_partitions_until_close"],
    ),
    (
        "2 taste at the last write close, with a barrier",
        SPAN,
        &["labelled_members_are_assembled_in_any_order_of_arrival"],
    ),
    (
        "3 spoil before taste",
        TASTE,
        &["labels_are_removed_while_their_provider_is_written_and_return"],
    ),
    ("4 an orphan is a conversation", TASTE, &["a_lost_disk_removes_all_geoms_above_it"]),
    (
        "4 with requests in flight",
        PATHS,
        &["paths_removed_with_requests_in_flight_lose_no_request"],
    ),
    (
        "4 against spoil and close, every order",
        "geom/tests/graph/orders.rs",
        &["wither_disk_loss_spoil_and_close_are_safe_in_every_order"],
    ),
    (
        "5 clones, of several the first error wins",
        "geom/tests/graph/flow.rs",
        &["first_child_that_fails_decides_the_status"],
    ),
    (
        "6 no memory is no error",
        "geom/tests/graph/flow.rs",
        &[
            "no_memory_never_reaches_the_originator",
            "lack_of_memory_in_every_hook_is_retried_without_leaks",
        ],
    ),
    (
        "7 direct or queued, whatever the hop",
        "geom/tests/graph/attach.rs",
        &["a_full_stack_with_a_split_at_every_layer_has_frames_enough"],
    ),
    (
        "8 the end of the medium",
        "geom/tests/graph/media_end.rs",
        &["request_is_cut_at_the_end_of_the_medium_or_refused_beyond_it"],
    ),
    (
        "9 last-sector metadata: sizes, names, nesting",
        "classes/tests/suite/bad_input/labels.rs",
        &[
            "mirror",
            "stripe_and_concat",
            "multipath",
            "a_label_that_names_its_own_geom_as_a_member_is_refused",
        ],
    ),
    ("9 it moves with the size", SPAN, &["labels_move_to_the_new_end_of_members_that_grow"]),
    ("9 and is nobody else's", SPAN, &["a_table_of_a_stripe_is_not_found_on_its_member"]),
    (
        "10 dirty first, clean late",
        MIRROR,
        &["members_are_dirty_from_the_first_write_to_the_last_close"],
    ),
    (
        "10 genid, syncid, EIO, ENXIO",
        ERRORS,
        &["mirror_10_eio_on_read", "mirror_13_enxio_on_write"],
    ),
    (
        "10 the same of raid",
        RAID,
        &[
            "a_volume_is_dirty_from_the_first_write_to_the_last_close",
            "a_disk_pulled_during_a_record_write_is_not_marked_failed",
        ],
    ),
    (
        "11 a rebuild against writes",
        "classes/tests/suite/sim/orders.rs",
        &[
            "members_agree_after_a_rebuild_during_writes",
            "a_member_lost_during_its_rebuild_agrees_after_its_return",
        ],
    ),
    (
        "12 multipath fails over on EIO and ENXIO alone",
        PATHS,
        &[
            "other_errors_end_the_request_and_keep_the_path_active",
            "a_single_path_is_tried_once_and_stays_active",
        ],
    ),
    (
        "12 its label is verified through every path",
        RECORD,
        &["label_requires_that_all_paths_lead_to_one_disk"],
    ),
    (
        "13 GPT: two copies, and who wins",
        "classes/tests/suite/part_powercut.rs",
        &[
            "recovery_of_every_damage_survives_a_cut",
            "a_differing_backup_is_reported_and_the_primary_is_used",
        ],
    ),
    (
        "13 GPT, MBR and the protective one",
        "classes/tests/suite/part_edit.rs",
        &["an_mbr_written_over_a_gpt_is_used_but_a_protective_mbr_is_not"],
    ),
    (
        "14 flush and delete through members",
        "classes/tests/suite/sim/mod.rs",
        &["rich_mirrors", "rich_stacks_three_deep"],
    ),
    // 15 is CAM's: disks and targets.
];

/// Faults that users reported (5.1, 5.2).
const BUGS: &[Row] = &[
    (
        "5.1 a zombie is tasted",
        "geom/tests/graph/taste.rs",
        &["disk_lost_during_a_taste_is_released"],
    ),
    (
        "5.1 two opens both granted",
        "geom/tests/graph/access.rs",
        &["opening_all_below_is_all_or_nothing"],
    ),
    (
        "5.1 low memory",
        "geom/tests/graph/orphan.rs",
        &["a_request_that_waits_for_memory_keeps_its_slot"],
    ),
    ("5.2 r306743", NAMED, &["r306743_a_broken_member_is_not_counted_for_a_missing_one"]),
    ("5.2 r317712", NAMED, &["r317712_a_late_dirty_member_is_rebuilt_first"]),
    ("5.2 r341665", NAMED, &["r341665_a_stale_member_found_first_is_not_used"]),
    (
        "5.2 metadata of another life",
        "classes/tests/suite/inspect_tools.rs",
        &[
            "our_own_members_and_labels_are_found",
            "wipe_requires_consent_refuses_open_disks_and_clears_the_rest",
        ],
    ),
    ("5.2 one component by two names", MIRROR, &["refusals_give_the_reason"]),
    ("5.2 the same of raid", RAID, &["the_same_disk_by_another_name_is_refused"]),
    (
        "5.2 multipath on a whole disk, and its GPT",
        RECORD,
        &["no_other_class_claims_the_paths_of_a_multipath_disk"],
    ),
    ("5.2 an image on a larger disk", VERBS, &["a_table_extends_to_the_new_end_of_a_grown_disk"]),
    (
        "5.2 GPT without a flush between",
        "classes/tests/suite/part_powercut.rs",
        &["gpt_edits_leave_old_or_new"],
    ),
    (
        "5.2 graid: RAID5 cannot be written",
        RAID,
        &["every_level_stores_its_data_and_is_found_again", "parity_is_repaired_after_a_crash"],
    ),
    (
        "5.2 resize leaves the old record",
        SPAN,
        &["labels_move_to_the_new_end_of_members_that_grow"],
    ),
    (
        "5.2 records without checksums",
        "classes/tests/suite/bad_input/labels.rs",
        &["stripe_and_concat"],
    ),
];

const SPAN: &str = "classes/tests/suite/class_span.rs";
const MIRROR: &str = "classes/tests/suite/class_mirror.rs";
const PATHS: &str = "classes/tests/suite/class_multipath/paths.rs";
const RECORD: &str = "classes/tests/suite/class_multipath/record.rs";
const RAID: &str = "classes/tests/suite/class_raid.rs";
const TASTE: &str = "classes/tests/suite/class_taste.rs";
const VERBS: &str = "classes/tests/suite/class_verbs.rs";
const NAMED: &str = "classes/tests/suite/sim/named.rs";
const ERRORS: &str = "classes/tests/suite/sim/errors.rs";

#[test]
fn every_row_names_an_existing_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (what, file, tests) in [FREEBSD, BEHAVIOURS, BUGS].into_iter().flatten() {
        let path = crates.join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(!tests.is_empty(), "{what}");
        for test in *tests {
            let is_there = text.contains(&format!("#[test]\nfn {test}() {{"));
            assert!(is_there, "{what}: no test {test} in {file}");
        }
    }
}
