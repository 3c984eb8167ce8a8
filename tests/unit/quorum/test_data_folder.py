"""Data folders: one owner, one process."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from metadata_log.types import ID_BYTES
from quorum.data_folder import (
    IDENTITY_FILE,
    DataFolderError,
    DataFolderInUse,
    DataFolderMismatch,
    claim_data_folder,
    release_data_folder,
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "deep" / "data"
    yield path
    release_data_folder(path)


def test_new_folder_is_made_and_marked(folder: Path) -> None:
    claimed = claim_data_folder(folder, "broker", 3, "c")
    identity = json.loads((folder / IDENTITY_FILE).read_bytes())
    assert bytes.fromhex(identity.pop("directory_id")) == claimed.directory_id
    assert identity == {"format": 1, "cluster_id": "c", "role": "broker", "node_id": 3}
    assert claimed.is_new
    assert len(claimed.directory_id) == ID_BYTES


def test_owner_comes_back_to_the_same_folder(folder: Path) -> None:
    claims = []
    for _ in range(2):
        claims.append(claim_data_folder(folder, "broker", 3, "c"))
        release_data_folder(folder)
    assert [claim.is_new for claim in claims] == [True, False]
    assert claims[0].directory_id == claims[1].directory_id


def test_a_folder_that_was_emptied_is_another_one(folder: Path) -> None:
    before = claim_data_folder(folder, "broker", 3, "c")
    release_data_folder(folder)
    (folder / IDENTITY_FILE).unlink()
    assert claim_data_folder(folder, "broker", 3, "c").directory_id != before.directory_id


def test_identity_without_a_directory_id_is_refused(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / IDENTITY_FILE).write_text(
        '{"format": 1, "cluster_id": "c", "role": "broker", "node_id": 3}'
    )
    with pytest.raises(DataFolderError, match="directory_id"):
        claim_data_folder(folder, "broker", 3, "c")


@pytest.mark.parametrize(
    ("role", "node_id", "cluster_id", "named"),
    [
        ("quorum", 3, "c", "role=broker, not role=quorum"),
        ("broker", 4, "c", "node_id=3, not node_id=4"),
        ("broker", 3, "d", "cluster_id=c, not cluster_id=d"),
    ],
)
def test_another_owner_is_refused_naming_both(
    folder: Path, role: str, node_id: int, cluster_id: str, named: str
) -> None:
    claim_data_folder(folder, "broker", 3, "c")
    release_data_folder(folder)
    with pytest.raises(DataFolderMismatch, match=named):
        claim_data_folder(folder, role, node_id, cluster_id)
    claim_data_folder(folder, "broker", 3, "c")  # The refusal left nothing locked.


def test_second_claim_is_refused_in_and_outside_of_this_process(folder: Path) -> None:
    claim_data_folder(folder, "broker", 3, "c")
    with pytest.raises(DataFolderInUse):
        claim_data_folder(folder, "broker", 3, "c")
    claim = (
        "import sys; from pathlib import Path\n"
        "from quorum.data_folder import DataFolderInUse, claim_data_folder\n"
        "try: claim_data_folder(Path(sys.argv[1]), 'broker', 3, 'c')\n"
        "except DataFolderInUse: sys.exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", claim, str(folder)], check=False)
    assert done.returncode == 7


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff"])
def test_damaged_identity_is_refused(folder: Path, content: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / IDENTITY_FILE).write_bytes(content)
    with pytest.raises(DataFolderError, match=IDENTITY_FILE):
        claim_data_folder(folder, "broker", 3, "c")


def test_newer_format_is_refused(folder: Path) -> None:
    claim_data_folder(folder, "broker", 3, "c")
    release_data_folder(folder)
    (folder / IDENTITY_FILE).write_text(
        '{"format": 2, "cluster_id": "c", "role": "broker", "node_id": 3}'
    )
    with pytest.raises(DataFolderMismatch, match="format 2"):
        claim_data_folder(folder, "broker", 3, "c")


def test_unusable_path_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DataFolderError, match=str(file)):
        claim_data_folder(file, "broker", 3, "c")
