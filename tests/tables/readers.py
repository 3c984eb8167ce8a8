"""Reads tables without Quorate's code: their own metadata and files, as any other engine would."""

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog

Rows = Counter[tuple[int, int, bytes]]
"""How often there is a row, by partition, offset and value."""


def iceberg_rows(warehouse: Path, table: str) -> Rows:
    """The rows of the data files that the newest snapshot lists."""
    catalog = load_catalog("quorate", type="sql", uri=f"sqlite:///{warehouse}/catalog.db")
    tasks = catalog.load_table(f"default.{table}").scan().plan_files()
    assert not any(task.delete_files for task in tasks)
    return _rows([Path(task.file.file_path.removeprefix("file://")) for task in tasks])


def delta_rows(folder: Path) -> Rows:
    """The rows of the data files that the log has added and not removed."""
    files: set[str] = set()
    commits = sorted((folder / "_delta_log").glob("*.json"))
    assert [int(one.stem) for one in commits] == list(range(len(commits))), "no checkpoint needed"
    for commit in commits:
        for line in commit.read_text(encoding="utf-8").splitlines():
            action: dict[str, Any] = json.loads(line)
            if "add" in action:
                files.add(action["add"]["path"])
            if "remove" in action:
                files.discard(action["remove"]["path"])
    return _rows([folder / unquote(one) for one in files])


def _rows(files: list[Path]) -> Rows:
    found: Rows = Counter()
    for file in files:
        rows = pq.ParquetFile(file).read(columns=["partition", "offset", "value"])
        found.update(zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True))
    return found
