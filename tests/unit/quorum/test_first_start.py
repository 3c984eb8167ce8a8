"""What a voter remembers of the first start."""

import json
from pathlib import Path

import pytest

from quorate.common.files.data_folder import DataFolderError
from quorate.quorum.operations.first_start import (
    FIRST_VOTERS_FILE,
    read_first_voters,
    write_first_voters,
)


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    assert read_first_voters(tmp_path) == {}
    directories = {1: b"a" * 16, 2: b"\0" * 16}
    write_first_voters(tmp_path, directories)
    assert read_first_voters(tmp_path) == directories


@pytest.mark.parametrize("content", ["", "[]", '{"format": 2, "voters": {}}', '{"format": 1}'])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / FIRST_VOTERS_FILE).write_text(content)
    with pytest.raises(DataFolderError, match=FIRST_VOTERS_FILE):
        read_first_voters(tmp_path)


def test_a_file_without_a_checksum_is_rewritten(tmp_path: Path) -> None:
    directories = {1: b"a" * 16, 2: b"\0" * 16}
    write_first_voters(tmp_path, directories)
    file = tmp_path / FIRST_VOTERS_FILE
    current = file.read_bytes()
    content = json.loads(current)
    del content["crc32c"]
    file.write_text(json.dumps({**content, "format": 1}))
    assert read_first_voters(tmp_path) == directories
    assert file.read_bytes() == current


def test_no_flipped_bit_is_believed(tmp_path: Path) -> None:
    write_first_voters(tmp_path, {1: b"a" * 16, 2: b"\0" * 16})
    file = tmp_path / FIRST_VOTERS_FILE
    content = file.read_bytes()
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        with pytest.raises(DataFolderError, match=FIRST_VOTERS_FILE):
            read_first_voters(tmp_path)
