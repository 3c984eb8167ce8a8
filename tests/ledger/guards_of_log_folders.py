"""Guards of several log folders per broker (KIP-112, KIP-113, rule 8)."""

from typing import Final

from tests.ledger.code_mutants import CodeMutant

_DIRECTORIES: Final = "quorate.broker.log.directories.log_directories:LogDirectories"
_KNOWN: Final = "quorate.broker.log.directories.known_folders"
_TESTS: Final = "tests/unit/log/directories"
_MOVES: Final = "tests/integration/test_replica_moves.py"

MUTANTS: Final = (
    CodeMutant(
        "folder-unmounted",
        f"{_KNOWN}:_why_not",
        "if before is None:",
        "if True:",
        f"{_TESTS}/test_known_folders.py::"
        "test_an_empty_folder_in_the_place_of_a_known_one_is_no_new_folder",
    ),
    CodeMutant(
        "folder-given-up",
        f"{_KNOWN}:_why_not",
        "if one.directory_id is not None and one.has_logs:",
        "if False:",
        f"{_TESTS}/test_known_folders.py::test_a_folder_that_was_given_up_stays_out",
    ),
    CodeMutant(
        "folder-withheld",
        f"{_DIRECTORIES}.create",
        "if tip in self.withheld:",
        "if False:",
        f"{_TESTS}/test_log_directories.py::"
        "test_the_logs_of_a_folder_that_is_not_there_get_no_others",
    ),
    CodeMutant(
        "folder-marks",
        f"{_DIRECTORIES}.checkpoint_high_watermarks",
        "store.checkpoint_high_watermarks(offsets, mark)",
        "store.checkpoint_high_watermarks(offsets)",
        f"{_TESTS}/test_log_directories.py::test_rule_8_the_marks_of_all_folders_grow_together",
    ),
    CodeMutant(
        "folder-record-waits",
        f"{_DIRECTORIES}._note_hosted_through",
        "await store.writer.settle()",
        "pass",
        f"{_TESTS}/test_log_directories.py::"
        "test_rule_8_a_record_of_what_has_a_log_waits_for_the_logs",
    ),
    CodeMutant(
        "move-newest-counts",
        f"{_DIRECTORIES}.settle_duplicates",
        "store.logs[tip].placement < newest",
        "False",
        f"{_TESTS}/test_log_directories.py::"
        "test_the_log_that_was_moved_last_counts_and_the_other_goes",
    ),
    CodeMutant(
        "move-outranked",
        "quorate.broker.replication.moving.replica_mover:ReplicaMover._finish",
        "await store.futures.outrank(source, future.placement)",
        "pass",
        f"{_MOVES}::"
        "test_a_copy_of_which_nobody_knows_whether_it_counts_never_replaces_later_records",
    ),
    CodeMutant(
        "move-in-pieces",
        "quorate.broker.replication.moving.replica_mover:ReplicaMover._copy",
        "if not size or future.log_end_offset >= durable:",
        "if True:",
        f"{_MOVES}::test_a_replica_stops_only_for_what_came_last",
    ),
    CodeMutant(
        "move-few-pieces-wait",
        "quorate.broker.replication.moving.replica_mover:ReplicaMover._copy",
        "await destination.writer.wait_for_flush(future, copied)",
        "pass",
        f"{_MOVES}::test_at_most_two_pieces_of_a_copy_wait_for_the_disk",
    ),
    CodeMutant(
        "move-absent-folder",
        f"{_DIRECTORIES}.settle_duplicates",
        "and absent.isdisjoint(here)",
        "",
        f"{_TESTS}/test_log_directories.py::"
        "test_a_log_that_went_on_while_its_copy_was_missing_is_not_deleted",
    ),
    CodeMutant(
        "move-copy-beside-log",
        f"{_DIRECTORIES}.settle_duplicates",
        "tip in store.logs or ",
        "",
        f"{_MOVES}::test_a_copy_beside_the_log_itself_is_given_up_at_the_start",
    ),
    CodeMutant(
        "move-truncated",
        "quorate.broker.replication.moving.replica_mover:ReplicaMover._finish",
        "if self._copied != (source, source.truncations):",
        "if False:",
        f"{_MOVES}::test_a_copy_of_what_was_truncated_meanwhile_never_counts",
    ),
    CodeMutant(
        "move-off-full-disk",
        "quorate.broker.replication.moving.replica_mover:ReplicaMover._finish",
        "if not store.is_full:",
        "if True:",
        f"{_MOVES}::test_a_replica_moves_off_a_full_disk",
    ),
)
