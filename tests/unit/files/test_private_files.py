"""Other users of a machine have no rights to data folders."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.common.files.data_folder import claimed_data_folder, held_data_folder
from quorate.common.files.private_files import (
    describe_narrowed,
    keep_files_private,
    make_private_folder,
    narrow,
)


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def wide_folder(path: Path) -> Path:
    """As a release of before has left it."""
    (path / "below").mkdir(parents=True)
    (path / "file").write_text("1")
    (path / "below" / "run").write_text("2")
    (path / "below" / "run").chmod(0o755)
    path.chmod(0o755)
    return path


def test_a_process_makes_private_files(tmp_path: Path) -> None:
    keep_files_private()
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    assert (mode(tmp_path / "file"), mode(tmp_path / "folder")) == (0o600, 0o700)


def test_a_folder_is_made_private_with_those_above_it(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b")
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o700, 0o700)
    (tmp_path / "file").write_text("")
    assert mode(tmp_path / "file") == 0o644, "the umask of a command is as it was"


def test_what_is_wider_is_narrowed_once(tmp_path: Path) -> None:
    folder = wide_folder(tmp_path / "data")
    outside = tmp_path / "outside"
    outside.write_text("")
    (folder / "link").symlink_to(outside)
    narrowed = narrow(folder)
    said = describe_narrowed(folder, narrowed)
    assert said == f"{folder}: other users had rights to 4 files and folders, and have none now"
    assert mode(folder) == mode(folder / "below") == 0o700
    assert mode(folder / "file") == mode(folder / "below" / "run") == 0o600
    assert mode(outside) == 0o644
    assert describe_narrowed(folder, narrow(folder)) is None


def test_a_folder_that_is_shared_by_intention_stays(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    narrowed = narrow(shared)
    assert mode(shared) == 0o1777
    assert narrowed.left == (shared,)
    assert "run chmod go= on it" in str(describe_narrowed(shared, narrowed))


def test_what_is_somebody_elses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = wide_folder(tmp_path / "data")

    def refuse(self: Path, _mode: int) -> None:
        raise PermissionError(str(self))

    monkeypatch.setattr(Path, "chmod", refuse)
    narrowed = narrow(folder)
    assert narrowed.changed == 0
    assert f"rights to {folder} and 3 others" in str(describe_narrowed(folder, narrowed))


def test_a_node_narrows_its_data_folder_and_says_so_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = wide_folder(tmp_path / "data")
    with caplog.at_level(logging.WARNING), claimed_data_folder(folder, "broker", 1, "c"):
        pass
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    caplog.clear()
    with claimed_data_folder(folder, "broker", 1, "c"):
        assert not caplog.records
    assert mode(folder / ".lock") == 0o600


def test_a_tool_makes_private_files_in_a_data_folder(tmp_path: Path) -> None:
    with held_data_folder(tmp_path):
        (tmp_path / "file").write_text("")
    assert mode(tmp_path / "file") == 0o600
