"""``quorate log``: reads, checks and repairs the log folder of a stopped broker."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quorate.cli.output import echo
from quorate.cli.records.folders_command import folders
from quorate.cli.records.log_folder import held_folder, log_dir_option
from quorate.cli.records.strays_command import strays
from quorate.cli.shared_options import json_option, print_json

if TYPE_CHECKING:
    from quorate.broker.log.recovery.examination import LogExamination, PartitionReport

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EXIT_DAMAGED = 1


@click.group()
def log() -> None:
    """Inspect, check and repair the log folder of a stopped broker.

    \b
    Example:
      quorate log dump --log-dir ./quorate-data/broker-1
      quorate log verify --log-dir ./quorate-data/broker-1
      quorate log repair --log-dir ./quorate-data/broker-1 --dry-run
      quorate log strays list --log-dir ./quorate-data/broker-1
    """


log.add_command(strays)
log.add_command(folders)


@log.command()
@log_dir_option
@click.option("--topic", help="Only this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option("--batches", is_flag=True, help="Show every batch with its offsets and its producer.")
@click.option("--segments", is_flag=True, help="Show the segment files instead.")
@json_option
def dump(
    directory: Path,
    topic: str | None,
    partition: int | None,
    batches: bool,
    segments: bool,
    as_json: bool,
) -> None:
    """Show the partitions, batches or segment files that a start of the broker would find.

    \b
    Example:
      quorate log dump --log-dir ./quorate-data/broker-1
      quorate log dump --log-dir ./quorate-data/broker-1 --topic events --partition 0 --batches
      quorate log dump --log-dir ./quorate-data/broker-1 --segments --json
    """
    examined = _examined(directory)
    if segments:
        _show_segments(examined, as_json=as_json)
        return
    chosen = [
        one
        for one in examined.partitions
        if (topic is None or one.topic == topic)
        and (partition is None or one.partition == partition)
    ]
    if not chosen and (topic is not None or partition is not None):
        there = ", ".join(sorted({one.topic for one in examined.partitions})) or "none"
        raise click.ClickException(f"{directory} has no such partition; its topics are {there}")
    rows = [_partition_document(one, with_batches=batches) for one in chosen]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        echo(
            f"{row['topic']}-{row['partition']}  offsets {row['log_start_offset']} to "
            f"{row['end_offset']}, {row['size']} bytes in {row['batch_count']} batches"
        )
        for each in row["open_transactions"]:
            echo(
                f"  open transaction of producer {each['producer_id']} epoch "
                f"{each['producer_epoch']}: offsets {each['first_offset']} to {each['last_offset']}"
            )
        for batch in row.get("batches", ()):
            echo("  " + _batch_line(batch))


@log.command()
@log_dir_option
@json_option
def verify(directory: Path, as_json: bool) -> None:
    """Check the position and the checksum of every batch, that no log has a gap, and whose the
    directory is. The exit code is 1 if something is wrong.

    \b
    Example:
      quorate log verify --log-dir ./quorate-data/broker-1
    """
    import msgspec

    examined = _examined(directory)
    if as_json:
        print_json([msgspec.to_builtins(problem) for problem in examined.problems])
    else:
        for problem in examined.problems:
            echo(str(problem))
        batches = sum(len(one.batches) for one in examined.partitions)
        echo(
            f"{len(examined.segments)} segments, {len(examined.partitions)} partitions, {batches} "
            f"batches: {len(examined.problems) or 'no'} problems"
        )
    if examined.problems:
        raise click.exceptions.Exit(EXIT_DAMAGED)


@log.command()
@log_dir_option
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@json_option
def repair(directory: Path, dry_run: bool, as_json: bool) -> None:
    """Set unreadable segments aside, and truncate partitions at their first invalid batch. If
    store.mdb is damaged, set it and all segments aside.

    After that the broker starts, declares that it has lost records, leaves every ISR, and fetches
    the missing records from the leaders. Where it has the only copy, the rest of that partition is
    lost.

    \b
    Example:
      quorate log repair --log-dir ./quorate-data/broker-1 --dry-run
      quorate log repair --log-dir ./quorate-data/broker-1
    """
    from quorate.broker.log.recovery import repair as repairing

    with held_folder(directory):
        actions = repairing.plan_repair(directory)
        if actions and not dry_run:
            repairing.carry_out(directory, actions)
    if as_json:
        print_json([str(action) for action in actions])
        return
    for action in actions:
        echo(f"{'would ' if dry_run else ''}{action}")
    if not actions:
        echo("nothing to repair")


def _examined(directory: Path) -> "LogExamination":
    from quorate.broker.log.recovery.folder_identity import examine_folder

    with held_folder(directory):
        return examine_folder(directory)


def _show_segments(examined: "LogExamination", *, as_json: bool) -> None:
    rows = [
        {
            "id": one.segment_id,
            "file": one.path,
            "size": one.size,
            "batches": len(one.batches),
            "problem": one.problem,
        }
        for one in examined.segments
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        problem = f": {row['problem']}" if row["problem"] else ""
        echo(f"{row['file']}  {row['size']} bytes, {row['batches']} batches{problem}")


def _partition_document(one: "PartitionReport", *, with_batches: bool) -> dict[str, Any]:
    import msgspec

    from quorate.broker.log.recovery.examination import open_transactions

    document: dict[str, Any] = {
        "topic": one.topic,
        "partition": one.partition,
        "topic_id": one.topic_id,
        "log_start_offset": one.log_start_offset,
        "end_offset": one.end_offset,
        "size": one.size,
        "batch_count": len(one.batches),
        "open_transactions": [msgspec.to_builtins(each) for each in open_transactions(one)],
    }
    if with_batches:
        document["batches"] = [
            {
                "base_offset": batch.base_offset,
                "last_offset": batch.last_offset,
                "records": batch.records,
                "size": batch.size,
                "leader_epoch": batch.leader_epoch,
                "max_timestamp_ms": batch.max_timestamp_ms,
                "compression": _CODECS[min(batch.compression, len(_CODECS) - 1)],
                "producer_id": batch.producer_id,
                "base_sequence": batch.base_sequence,
                "producer_epoch": batch.producer_epoch,
                "transaction": batch.transaction,
            }
            for batch in one.batches
        ]
    return document


def _batch_line(batch: dict[str, Any]) -> str:
    producer = ""
    if batch["producer_id"] >= 0:
        producer = f", producer {batch['producer_id']}"
        if batch["transaction"] in ("commit", "abort"):
            producer += f" epoch {batch['producer_epoch']}: {batch['transaction']}"
        else:
            producer += f" from sequence {batch['base_sequence']}"
            producer += ", in a transaction" if batch["transaction"] else ""
    return (
        f"{batch['base_offset']} to {batch['last_offset']}: {batch['records']} records, "
        f"{batch['size']} bytes, {batch['compression']}, epoch {batch['leader_epoch']}{producer}"
    )
