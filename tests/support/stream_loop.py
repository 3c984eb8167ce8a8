"""Spark's micro-batch loop without Spark, to be killed: ``python -m tests.support.stream_loop``.

It keeps a checkpoint as Spark does (the end of a batch is on disk before the batch runs, and a mark
after it), reads the ranges as executors do, and has a sink that is idempotent by batch id. Started
again over the same folder it goes on; what starts in a second can be killed often.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from quorate.spark.source import QuorateDataSource
from quorate.spark.streaming.stream_reader import QuorateStreamReader

Row = tuple[int, int, bytes]
"""Partition, offset and key."""


def committed_rows(folder: Path) -> dict[int, list[Row]]:
    """Return the rows that the sink holds, by batch."""
    return {
        int(file.stem): [(p, n, key.encode()) for p, n, key in json.loads(file.read_text())]
        for file in (folder / "sink").glob("*.json")
    }


def _write(file: Path, content: object) -> None:
    """Write at once or not at all, as Spark writes its logs."""
    file.parent.mkdir(exist_ok=True)
    aside = file.with_suffix(".aside")
    aside.write_text(json.dumps(content))
    aside.rename(file)


def _read(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def _run(reader: QuorateStreamReader, folder: Path, *, to_the_end: bool) -> None:
    offsets = folder / "offsets"
    batch_id = max((int(file.stem) for file in offsets.glob("*.json")), default=0)
    if (folder / "commits" / f"{batch_id}.json").exists():
        batch_id += 1
    if to_the_end:
        reader.prepareForTriggerAvailableNow()
    while True:
        start = _read(offsets / f"{batch_id - 1}.json") or reader.initialOffset()
        end = _read(offsets / f"{batch_id}.json")
        if end is None:
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start and batch_id > 0:
                if to_the_end:
                    return
                continue
            _write(offsets / f"{batch_id}.json", end)
        rows = [
            (row["partition"], row["offset"], row["key"].decode())
            for partition in reader.partitions(start, end)
            for batch in reader.read(partition)
            for row in batch.select(["partition", "offset", "key"]).to_pylist()
        ]
        sunk = folder / "sink" / f"{batch_id}.json"
        if sunk.exists():
            assert json.loads(sunk.read_text()) == [list(row) for row in rows], batch_id
        _write(sunk, rows)
        _write(folder / "commits" / f"{batch_id}.json", {})
        batch_id += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--starting", required=True)
    parser.add_argument("--to-the-end", action="store_true")
    arguments = parser.parse_args()
    options = {
        "kafka.bootstrap.servers": arguments.bootstrap,
        "subscribe": arguments.topic,
        "startingOffsets": arguments.starting,
        "maxRecordsPerPartition": "200",
    }
    source = QuorateDataSource(options)
    reader = source.streamReader(source.schema())
    assert isinstance(reader, QuorateStreamReader)
    _run(reader, arguments.folder, to_the_end=arguments.to_the_end)


if __name__ == "__main__":
    main()
