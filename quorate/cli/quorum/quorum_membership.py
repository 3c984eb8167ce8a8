"""``quorate quorum status|add-voter|remove-voter|transfer``: the quorum's voters and its leader."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from quorate.cli.output import echo
from quorate.cli.quorum.quorum_address import QuorumAddress, quorum_address_options
from quorate.cli.shared_options import json_option, print_json, timeout_option

if TYPE_CHECKING:
    from quorate.quorum.operations.admin import QuorumAdmin
    from quorate_proto.v1.quorum_pb2 import (
        AddVoterProgress,
        QuorumStatusResponse,
        VoterStatus,
    )

T = TypeVar("T")

_COLUMNS: Final = "{:>5}  {:<8}  {:<21}  {:<21}  {:>12}  {:>8}  {:>8}  {}"


@click.command()
@quorum_address_options
@timeout_option(10_000)
@json_option
def status(
    where: QuorumAddress,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Show the leader, the term and offsets, and the progress of each voter.

    Lag is the number of entries that a voter is behind the leader's log. Heard is the time since
    the voter last answered the leader. Only the leader knows both values.

    \b
    Example:
      quorate quorum status --bootstrap-controller host1:7101,host2:7101
      quorate quorum status --data ./quorate-data --json
    """
    found = _run(where, timeout_ms, lambda admin: admin.status())
    if as_json:
        print_json(as_document(found))
    else:
        _show(found)


@click.command("add-voter")
@click.argument("voter", metavar="ID@HOST:RAFTPORT/GRPCPORT")
@quorum_address_options
@timeout_option(600_000)
@json_option
def add_voter(
    voter: str,
    where: QuorumAddress,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Make a voter of a process that was started with an empty data folder.

    It first receives the log, and gets its vote when it has caught up. If the command is
    interrupted, give it again: it continues where it stopped.

    \b
    Example (voter 4 runs already: quorate node quorum --config quorum-4.toml):
      quorate quorum add-voter 4@host4:7001/7101 --bootstrap-controller host1:7101
    """
    from quorate.quorum.quorum_config import parse_voters

    new = parse_voters(voter)
    if len(new) != 1:
        raise click.UsageError("one voter at a time")
    said = ""

    def tell(progress: "AddVoterProgress") -> None:
        nonlocal said
        if progress.detail != said:
            said = progress.detail
            echo(f"voter {new[0].voter_id}: {said}", err=True)

    _run(
        where,
        timeout_ms,
        lambda admin: admin.add_voter(new[0], tell),
    )
    _done({"added": new[0].voter_id}, f"voter {new[0].voter_id} was added", as_json=as_json)


@click.command("remove-voter")
@click.argument("voter_id", metavar="ID", type=click.IntRange(min=1))
@quorum_address_options
@timeout_option(30_000)
@json_option
def remove_voter(
    voter_id: int,
    where: QuorumAddress,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Remove a voter from the quorum. Its process then ends by itself.

    It is refused if the remaining live voters would not be a majority, and if this does not change
    within some seconds. A leader first hands over its leadership.

    \b
    Example:
      quorate quorum remove-voter 3 --bootstrap-controller host1:7101
    """
    offset = _run(
        where,
        timeout_ms,
        lambda admin: admin.remove_voter(voter_id),
    )
    _done({"removed": voter_id, "offset": offset}, f"voter {voter_id} was removed", as_json=as_json)


@click.command()
@click.option("--to", "voter_id", required=True, type=click.IntRange(min=1), metavar="ID")
@quorum_address_options
@timeout_option(10_000)
@json_option
def transfer(
    voter_id: int,
    where: QuorumAddress,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Make another voter the leader, for example before the leader's host is shut down.

    Clients wait for a moment and lose nothing.

    \b
    Example:
      quorate quorum transfer --to 2 --bootstrap-controller host1:7101
    """
    term = _run(
        where,
        timeout_ms,
        lambda admin: admin.transfer_leadership(voter_id),
    )
    _done(
        {"leader": voter_id, "term": term}, f"voter {voter_id} leads, term {term}", as_json=as_json
    )


def _run(
    where: QuorumAddress,
    timeout_ms: int,
    ask: "Callable[[QuorumAdmin], Awaitable[T]]",
) -> T:
    from quorate.quorum.operations.admin import QuorumAdmin

    async def connected() -> T:
        directory = where.directory()
        try:
            return await ask(QuorumAdmin(directory, timeout_ms / 1000, on_wait=_waits))
        finally:
            await directory.close()

    return asyncio.run(connected())


def _waits(why: str) -> None:
    echo(f"not yet, trying again: {why}", err=True)


def _done(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        echo(text)


def as_document(status: "QuorumStatusResponse") -> dict[str, Any]:
    """Return the status as the JSON document that scripts read; -1 is a value that the answering
    voter does not know."""
    return {
        "cluster_id": status.cluster_id,
        "leader": status.leader_id,
        "term": status.term,
        "commit_offset": status.commit_offset,
        "log_start_offset": status.log_start_offset,
        "voter_set_version": status.voter_set_version,
        "answered_by": status.voter_id,
        "voters": [
            {
                "id": voter.voter_id,
                "role": _role(status, voter),
                "raft": voter.raft_address,
                "grpc": voter.grpc_address,
                "match_offset": voter.match_offset,
                "lag": voter.lag,
                "last_heard_ms": voter.last_heard_ms,
                "connected": voter.connected,
                "directory_id": voter.directory_id.hex(),
                "stale": voter.stale,
            }
            for voter in status.voters
        ],
    }


def _role(status: "QuorumStatusResponse", voter: "VoterStatus") -> str:
    if voter.observer:
        return "observer"
    return "leader" if voter.voter_id == status.leader_id else "follower"


def _show(status: "QuorumStatusResponse") -> None:
    leader = f"voter {status.leader_id}" if status.leader_id else "none"
    echo(f"cluster    {status.cluster_id}")
    echo(f"leader     {leader}, term {status.term}")
    echo(f"log        from {status.log_start_offset}, committed to {status.commit_offset}")
    if status.voter_id != status.leader_id:
        echo(f"answered by voter {status.voter_id}, which does not lead")
    heads = ("voter", "role", "raft", "grpc", "match", "lag", "heard", "connected")
    echo(_COLUMNS.format(*heads))
    for voter in status.voters:
        echo(
            _COLUMNS.format(
                voter.voter_id,
                _role(status, voter),
                voter.raft_address,
                voter.grpc_address,
                _known(voter.match_offset),
                _known(voter.lag),
                _known(voter.last_heard_ms, " ms"),
                "yes" if voter.connected else "no",
            )
        )
    for voter in status.voters:
        if voter.stale:
            echo(f"LOST: {voter.stale}")


def _known(value: int, unit: str = "") -> str:
    return "-" if value < 0 else f"{value}{unit}"
