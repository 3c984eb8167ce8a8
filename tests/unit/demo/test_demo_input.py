"""The demo's input: text files only, every line, file path as key."""

import subprocess
from pathlib import Path

import pytest

from quorate.demo.demo_input import NoInput, find_demo_input


def test_every_line_of_a_file_comes_with_its_path_and_position(tmp_path: Path) -> None:
    file = tmp_path / "poem.txt"
    file.write_bytes(b"one\n\nthree\r\nlast")
    source = find_demo_input(str(file))
    assert [(line.path, line.text, line.end) for line in source.lines()] == [
        ("poem.txt", b"one", 4),
        ("poem.txt", b"", 5),
        ("poem.txt", b"three", 12),
        ("poem.txt", b"last", 16),
    ]
    assert source.size_bytes == 16


def test_a_folder_is_walked_for_text_alone(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "sub" / "a.md").write_text("a\n")
    (tmp_path / ".hidden" / "b.md").write_text("b\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    assert [line.path for line in find_demo_input(str(tmp_path)).lines()] == ["sub/a.md"]


def test_in_a_checkout_tracked_files_alone_count(tmp_path: Path) -> None:
    (tmp_path / "tracked.py").write_text("x = 1\n")
    (tmp_path / "scratch.py").write_text("y = 2\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "add", "tracked.py"], check=True)
    assert [line.path for line in find_demo_input(str(tmp_path)).lines()] == ["tracked.py"]


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoInput, match="absent"):
        find_demo_input(str(tmp_path / "absent"))
    with pytest.raises(NoInput, match=str(tmp_path)):
        find_demo_input(str(tmp_path))
