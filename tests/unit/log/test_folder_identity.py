"""Whose a log folder is: looked at by `quorate log verify`, and required of a folder with logs."""

from pathlib import Path

import pytest

from quorate.broker.log.recovery.folder_identity import examine_folder, require_identity
from quorate.common.files.data_folder import IDENTITY_FILE, DataFolderError, claimed_data_folder
from tests.support.log_stores import opened


async def make(folder: Path, role: str = "broker") -> None:
    with claimed_data_folder(folder, role, 1, "cluster"):
        async with opened(folder):
            pass


def problems(folder: Path) -> str:
    return " ".join(str(problem) for problem in examine_folder(folder).problems)


async def test_a_folder_of_a_broker_has_no_problem(tmp_path: Path) -> None:
    await make(tmp_path)
    assert not problems(tmp_path)


async def test_a_malformed_identity_is_a_problem(tmp_path: Path) -> None:
    await make(tmp_path)
    (tmp_path / IDENTITY_FILE).write_text("{")
    assert IDENTITY_FILE in problems(tmp_path)


async def test_the_identity_of_a_voter_is_a_problem(tmp_path: Path) -> None:
    await make(tmp_path, "quorum")
    assert "is of a quorum, not of a broker" in problems(tmp_path)


async def test_logs_without_identity_are_a_problem_and_refused(tmp_path: Path) -> None:
    await make(tmp_path)
    (tmp_path / IDENTITY_FILE).unlink()
    assert f"has logs but no {IDENTITY_FILE}; restore it" in problems(tmp_path)
    with (
        pytest.raises(DataFolderError, match=f"has logs but no {IDENTITY_FILE}; restore it"),
        claimed_data_folder(tmp_path, "broker", 1, "cluster", require_identity),
    ):
        raise AssertionError("claimed")


def test_an_empty_folder_is_claimed(tmp_path: Path) -> None:
    with claimed_data_folder(tmp_path, "broker", 1, "cluster", require_identity):
        assert (tmp_path / IDENTITY_FILE).exists()
