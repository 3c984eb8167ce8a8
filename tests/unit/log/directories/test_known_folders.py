"""Which of its folders a broker opens, from what is at their paths and what it had before."""

import os
from pathlib import Path

import pytest

from quorate.broker.log.directories.known_folders import (
    FILE_NAME,
    Absence,
    FoundFolder,
    KnownFolder,
    KnownFolders,
    newest,
    plan_folders,
    read_known_folders,
    write_known_folders,
)
from quorate.common.files.data_folder import DataFolderMalformed
from tests.support.disk_faults import flip

A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))
KNOWN = KnownFolders(3, {A: KnownFolder("/a"), B: KnownFolder("/b")})


def found(path: str, directory_id: bytes | None = None, *, has_logs: bool = True) -> FoundFolder:
    return FoundFolder(Path(path), directory_id, has_logs and directory_id is not None)


def test_a_first_start_opens_all_paths() -> None:
    plan = plan_folders([found("/a"), found("/b")], KnownFolders())
    assert (plan.usable, plan.offline, plan.missing) == ([Path("/a"), Path("/b")], {}, {})


def test_a_second_folder_joins_the_one_of_a_broker_that_had_one() -> None:
    plan = plan_folders([found("/a", A), found("/b")], KnownFolders())
    assert (plan.usable, plan.offline) == ([Path("/a"), Path("/b")], {})


def test_a_folder_may_be_added_to_several_and_disks_may_change_places() -> None:
    plan = plan_folders([found("/b", A), found("/a", B), found("/c")], KNOWN)
    assert (len(plan.usable), plan.offline, plan.missing) == (3, {}, {})


def test_an_empty_folder_in_the_place_of_a_known_one_is_no_new_folder() -> None:
    """Its disk is not mounted: logs that are created there would be in the way of the disk."""
    plan = plan_folders([found("/a", A), found("/b")], KNOWN)
    assert plan.usable == [Path("/a")]
    assert "mount its disk" in plan.offline[Path("/b")]
    assert f"forget {B.hex()}" in plan.offline[Path("/b")]
    assert plan.missing == {B: KnownFolder("/b")}


def test_a_claim_that_was_interrupted_does_not_make_the_folder_anothers() -> None:
    plan = plan_folders([found("/a", A), found("/b", B), found("/c", C, has_logs=False)], KNOWN)
    assert len(plan.usable) == 3


def test_a_known_folder_that_is_not_listed_is_missed() -> None:
    plan = plan_folders([found("/a", A)], KNOWN)
    assert plan.usable == [Path("/a")]
    assert "not at any path of log.dirs" in plan.offline[Path("/b")]
    assert set(plan.missing) == {B}


def test_a_folder_that_was_given_up_stays_out() -> None:
    plan = plan_folders([found("/a", A), found("/b", B), found("/c", C)], KNOWN)
    assert plan.usable == [Path("/a"), Path("/b")]
    assert "no longer, one of this broker's" in plan.offline[Path("/c")]


def test_a_folder_that_cannot_be_read_is_offline_with_its_error() -> None:
    plan = plan_folders([found("/a", A), FoundFolder(Path("/b"), error="I/O error")], KNOWN)
    assert plan.offline == {Path("/b"): "I/O error"}
    assert set(plan.missing) == {B}


def test_the_record_with_the_highest_version_counts() -> None:
    older = KnownFolders(2, {A: KnownFolder("/a")})
    assert newest([older, None, KNOWN]) is KNOWN
    assert newest([None]) == KnownFolders()
    assert KNOWN.with_folders(dict(KNOWN.folders)) is KNOWN
    assert KNOWN.with_folders(older.folders).version == 4


def test_the_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_known_folders(tmp_path) is None
    absent = KnownFolder("/b", Absence(os.urandom(16), 7, 9))
    known = KnownFolders(4, {A: KnownFolder("/a"), B: absent})
    write_known_folders(tmp_path, known)
    assert read_known_folders(tmp_path) == known


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    write_known_folders(tmp_path, KNOWN)
    flip(tmp_path / FILE_NAME, b"version")
    with pytest.raises(DataFolderMalformed, match="Copy the file"):
        read_known_folders(tmp_path)
