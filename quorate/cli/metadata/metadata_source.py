"""The source that ``quorate metadata`` reads: a voter of the quorum, or a broker that relays it."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from quorate.cli.output import echo
from quorate.cli.quorum.quorum_address import QuorumAddress, quorum_address_options
from quorate.cli.shared_options import read_client_options

if TYPE_CHECKING:
    from quorate.common.types import MetadataOffset
    from quorate.metadata_log.image import Image
    from quorate.metadata_log.records import Operation, OperationResult
    from quorate.quorum.client.watch import WatchEvent

READY_TIMEOUT_S: Final = 2.0
WRITE_TIMEOUT_MS: Final = 10_000
NOTHING_YET: Final = 1


class MetadataAddress(NamedTuple):
    """The addresses to ask: brokers, or else the quorum."""

    bootstrap_server: str | None
    quorum: QuorumAddress

    def client_options(self) -> dict[str, str]:
        """Return the security options for brokers.

        Raises:
            ConfigError: the file of --command-config cannot be read.
        """
        path = self.quorum.command_config
        return {} if path is None else read_client_options(path)


def metadata_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--bootstrap-server`` and the options of a quorum; the command receives them as
    ``where``."""

    @click.option(
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        help="Kafka address of one or more brokers, used instead of the quorum.",
    )
    @quorum_address_options
    @functools.wraps(command)
    def with_address(
        where: QuorumAddress,
        bootstrap_server: str | None,
        **others: Any,  # noqa: ANN401 - the command's own
    ) -> None:
        if bootstrap_server and where.is_given:
            raise click.UsageError(
                "give --bootstrap-server, --bootstrap-controller or --data, not two of them"
            )
        command(where=MetadataAddress(bootstrap_server, where), **others)

    return with_address


async def image_now(where: MetadataAddress) -> "Image":
    """Return the newest image, which contains everything that was acknowledged before the call.

    While the quorum cannot guarantee that, this is the image of one voter, and a note says so.
    """
    import grpc

    from quorate.quorum.client.watch import watch_request

    async with _watcher(where) as begin:
        try:
            return await _first_image(where, begin(watch_request(linearizable=True)))
        except grpc.aio.AioRpcError as error:
            why = error.details() or error.code().name
        except TimeoutError:
            why = "the quorum confirms nothing"
        image = await _first_image(where, begin(watch_request()))
    echo(f"perhaps outdated, as of offset {image.offset}: {why}", err=True)
    return image


async def _first_image(where: MetadataAddress, call: Any) -> "Image":  # noqa: ANN401 - typed nowhere in grpc
    from quorate.common.types import MetadataOffset
    from quorate.quorum.client.watch import SnapshotLoaded, read_events

    async with aclosing(read_events(call, MetadataOffset(0))) as events:  # type: ignore[type-var]  # A generator.
        async for event in events:
            if isinstance(event, SnapshotLoaded):
                return event.image
    raise _unavailable(where, "it ended the watch")


async def image_at(where: MetadataAddress, offset: "MetadataOffset") -> "Image":
    """Return the image after ``offset``.

    Raises:
        OffsetUnavailable: the offset is not kept any more, or not written yet.
    """
    from quorate.quorum.client import watch as time_travel

    async with watch(where, from_oldest=True) as events:
        return await time_travel.image_at(events, offset)


async def write(
    where: QuorumAddress, decide: "Callable[[Image], Operation]"
) -> "tuple[Image, OperationResult]":
    """Carry out one operation at the quorum, and return the image it was decided from and its
    result.

    ``decide`` receives the newest image.

    Raises:
        QuorumError: the quorum does not answer.
    """
    from quorate.quorum.client.quorum_client import QuorumClient

    client = QuorumClient(
        where.voters(),
        description="quorate metadata",
        session_timeout_ms=WRITE_TIMEOUT_MS,
        security=where.security(),
    )
    await client.start(deadline_ms=WRITE_TIMEOUT_MS)
    try:
        image = await image_now(MetadataAddress(None, where))
        result = await client.transact([decide(image)], timeout_ms=WRITE_TIMEOUT_MS)
    finally:
        await client.close()
    return image, result.results[0]


@asynccontextmanager
async def watch(
    where: MetadataAddress,
    *,
    from_offset: int = NOTHING_YET,
    from_oldest: bool = False,
) -> "AsyncIterator[AsyncIterator[WatchEvent]]":
    """Open a watch at a voter or through a broker, and give its events.

    Raises:
        QuorumUnavailable, ClusterUnreachable, BootstrapError: nobody answers; the message names the
            addresses that were asked.
    """
    from quorate.common.types import MetadataOffset
    from quorate.quorum.client.watch import read_events, watch_request

    request = watch_request(from_offset=from_offset, from_oldest=from_oldest)
    async with (
        _watcher(where) as begin,
        aclosing(read_events(begin(request), MetadataOffset(from_offset))) as events,  # type: ignore[type-var]  # A generator.
    ):
        yield events


@asynccontextmanager
async def _watcher(where: MetadataAddress) -> AsyncIterator[Callable[..., Any]]:
    """Yield the watch method of the first server that answers; errors inside name the server."""
    import grpc

    async with AsyncExitStack() as cleanup:
        with _naming_who(where):
            try:
                if where.bootstrap_server is None:
                    yield await _at_a_voter(where.quorum, cleanup)
                else:
                    yield await _at_a_broker(
                        where.bootstrap_server, where.client_options(), cleanup
                    )
            except grpc.aio.AioRpcError as error:
                raise _unavailable(where, error.details() or error.code().name) from error


async def _at_a_voter(where: QuorumAddress, cleanup: AsyncExitStack) -> Any:  # noqa: ANN401 - typed nowhere in grpc
    """Connect to the leader, which knows everything first, or to any available voter if there is
    none."""
    from quorate.quorum.voter_channels import stub_of

    directory = where.directory()
    cleanup.push_async_callback(directory.close)
    await directory.find_leader()
    for address in directory.in_order_of_preference():
        channel = directory.channel(address)
        if await _is_ready(channel):
            return stub_of(channel).Watch
    raise _unavailable(MetadataAddress(None, where), directory.last_error)


async def _at_a_broker(bootstrap: str, options: Mapping[str, str], cleanup: AsyncExitStack) -> Any:  # noqa: ANN401 - as above
    from quorate.client.bootstrap import discover
    from quorate.client.errors import ClusterUnreachable
    from quorate.client.grpc_channels import open_async_channel
    from quorate.client.security import read_options
    from quorate_proto.v1 import admin_pb2_grpc

    security = read_options(options)
    found = await asyncio.to_thread(discover, bootstrap, security=security.kafka)
    addresses = [broker.grpc for broker in found.brokers if broker.grpc]
    for address in addresses:
        channel = open_async_channel(address, security.grpc)
        cleanup.push_async_callback(channel.close)
        if await _is_ready(channel):
            return admin_pb2_grpc.MetadataViewStub(channel).WatchMetadata
    raise ClusterUnreachable(f"no broker of {bootstrap} answers at {', '.join(addresses)}")


async def _is_ready(channel: Any) -> bool:  # noqa: ANN401 - as above
    try:
        await asyncio.wait_for(channel.channel_ready(), READY_TIMEOUT_S)
    except TimeoutError:
        return False
    return True


@contextmanager
def _naming_who(where: MetadataAddress) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise _unavailable(where, "it has fallen silent") from error


def _unavailable(where: MetadataAddress, why: str) -> Exception:
    from quorate.quorum.quorum_errors import QuorumUnavailable

    asked = where.bootstrap_server or ", ".join(where.quorum.voters())
    return QuorumUnavailable(f"the metadata cannot be read at {asked}: {why}")
