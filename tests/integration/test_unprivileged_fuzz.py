"""Users without rights send every field of every message: nothing changes, and nobody waits.

The seed is printed, and ``FUZZ_SEED`` sets it.
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from bench.hostile_requests.good_clients import TOPIC
from bench.hostile_requests.values import VICTIM
from bench.hostile_requests.wire import Wire
from bench.hostile_requests.world import NOBODY, ROOT, log_path, world
from quorate.broker.kafka.api_table import api_table
from quorate.common.tls.certificate_authority import CertificateAuthority
from quorate.metadata_log.image import Image
from quorate.metadata_log.snapshot.snapshot import decode_snapshot
from quorate.quorum.voter_channels import open_channel, stub_of
from quorate.testing.running import RunningCluster
from quorate_proto.v1 import quorum_pb2
from tests.support.grpc_services import CLIENT_SERVICES
from tests.support.kafka_wire import sized
from tests.support.unprivileged.kafka_requests import random_frame
from tests.support.unprivileged.messages import random_message, settable_fields

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SEED: Final = int(os.environ.get("FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
USERS: Final = ("nobody", "stranger", "voter-1")
"""Whose certificates are shown over gRPC. A mapping rule takes the stranger for User:ANONYMOUS, and
the voter's was stolen.
"""

CALL_TIMEOUT_S: Final = 10.0
STALL_S: Final = 2.0
"""What another client may wait at most. It is far above what it waits, for machines differ."""

OWN_PACE: Final = frozenset({"offset", "histories", "silences", "results", "administered"})
"""Fields of the image that change by themselves: marks of folders, and what brokers were told. The
offset of the last change of administration moves with tokens of one's own.
"""

OWNERS: Final = frozenset({f"User:{NOBODY}", "User:CN=nobody", "User:CN=voter-1"})
"""Who has logged in may make tokens of its own, as in Kafka, and nobody else's."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    settings: Mapping[str, object] = {
        "ssl.principal.mapping.rules": "RULE:^CN=stranger$/ANONYMOUS/,DEFAULT"
    }
    with world(1, settings, partitions=8) as running:
        authority = CertificateAuthority.open(running.folder / "certs")
        for name in ("nobody", "stranger"):
            authority.issue(name, ["host.example"])
        yield running


# --- what must not change -------------------------------------------------------------------------


async def _image(cluster: RunningCluster) -> Image:
    async with open_channel(cluster.voter_grpc_address(1), cluster.quorum_security()) as channel:
        request = quorum_pb2.ReadRequest(linearizable=True, include_image=True)
        answer = await stub_of(channel).Read(request, timeout=CALL_TIMEOUT_S)
        return decode_snapshot([answer.snapshot])


def state(cluster: RunningCluster) -> dict[str, Any]:
    """Everything that a user without rights must not change."""
    image = asyncio.run(_image(cluster))
    found: dict[str, Any] = {
        name: getattr(image, name) for name in Image.__struct_fields__ if name not in OWN_PACE
    }
    found["tokens"] = {
        token_id: token
        for token_id, token in image.tokens.items()
        if not (token.owner == token.requester and token.owner in OWNERS)
    }
    with Wire(cluster.broker_address(1), ROOT) as wire:
        found["group"] = wire.ask(15, 0, {"groups": [VICTIM]})
        found["committed"] = wire.ask(
            9, 1, {"group_id": VICTIM, "topics": [{"name": VICTIM, "partition_indexes": [0, 1]}]}
        )
        for topic in (TOPIC, VICTIM, "__consumer_offsets", "__transaction_state"):
            found[f"end of {topic}"] = wire.ask(2, 1, _latest(topic)).topics[0].partitions
    found["pid"] = cluster.broker_pid(1)
    return found


def _latest(topic: str) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "timestamp": -1}]
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


class Watched:
    """Another client beside the fuzz, and the broker's log."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self._other = Wire(cluster.broker_address(1), ROOT)
        self._log = log_path(cluster, 1)
        self._read = self._log.stat().st_size
        self.worst_s = 0.0

    def look(self) -> None:
        """Ask for metadata, and see how long that takes."""
        begun = time.monotonic()
        self._other.ask(3, 1, {"topics": [{"name": TOPIC}]})
        self.worst_s = max(self.worst_s, time.monotonic() - begun)

    def faults(self) -> list[str]:
        """What the broker has logged since as its own fault."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            lines = log.read().decode(errors="replace").splitlines()
        return [line for line in lines if " ERROR " in line or line.startswith("Traceback")]

    def close(self) -> None:
        self._other.socket.close()


# --- gRPC -----------------------------------------------------------------------------------------


def credentials(cluster: RunningCluster, stem: str) -> grpc.ChannelCredentials:
    certs = cluster.folder / "certs"
    authority = (certs / "truststore.pem").read_bytes()
    pem = (certs / f"{stem}.pem").read_bytes()
    at = pem.index(b"-----BEGIN CERTIFICATE-----")
    return grpc.ssl_channel_credentials(authority, pem[:at], pem[at:])


def send(channel: grpc.Channel, method: MethodDescriptor, request: Message) -> grpc.StatusCode:
    """How the call ended; of streams the first answer counts."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    kind = f"{'stream' if method.client_streaming else 'unary'}_stream"
    call: Any = getattr(channel, kind)(path, type(request).SerializeToString)
    asked = iter([request]) if method.client_streaming else request
    answers = call(asked, timeout=CALL_TIMEOUT_S)
    try:
        next(answers, None)
    except grpc.RpcError:
        code: grpc.StatusCode = answers.code()
        return code
    finally:
        answers.cancel()
    return grpc.StatusCode.OK


def fuzz_grpc(cluster: RunningCluster, seed: int, times: int) -> dict[str, int]:
    """Send each field of each message so many times as each user; return how the calls ended."""
    sys.stdout.write(f"FUZZ_SEED={seed} repeats this run\n")
    chance = random.Random(seed)
    ended: dict[str, int] = {}
    watched = Watched(cluster)
    options = [("grpc.ssl_target_name_override", "broker.quorate")]
    for stem in USERS:
        address = cluster.broker_grpc_address(1)
        with grpc.secure_channel(address, credentials(cluster, stem), options) as channel:
            for service in CLIENT_SERVICES:
                for method in service.methods:
                    for path in [(), *settable_fields(method.input_type)] * times:
                        request = random_message(chance, method.input_type, path)
                        code = send(channel, method, request)
                        assert code is not grpc.StatusCode.DEADLINE_EXCEEDED, (method, request)
                        assert code is not grpc.StatusCode.UNKNOWN, (method.full_name, request)
                        ended[code.name] = ended.get(code.name, 0) + 1
                    watched.look()
    watched.close()
    assert watched.faults() == []
    assert watched.worst_s < STALL_S
    return ended


def test_f5_no_field_of_a_grpc_message_changes_anything(cluster: RunningCluster) -> None:
    before = state(cluster)
    ended = fuzz_grpc(cluster, SEED, 1)
    assert differences(before, state(cluster)) == {}
    assert ended["PERMISSION_DENIED"] > 10
    assert sum(ended.values()) > 400


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_f5_no_field_of_a_grpc_message_changes_anything_for_long(cluster: RunningCluster) -> None:
    before = state(cluster)
    for number in range(20):
        fuzz_grpc(cluster, SEED + number, 3)
    assert differences(before, state(cluster)) == {}


# --- Kafka's wire ---------------------------------------------------------------------------------


def fuzz_kafka(cluster: RunningCluster, seed: int, times: int) -> dict[str, int]:
    """Send every API in every version so many times; return how many were answered, and closed."""
    sys.stdout.write(f"FUZZ_SEED={seed} repeats this run\n")
    chance = random.Random(seed)
    topic_ids = [topic.topic_id for topic in asyncio.run(_image(cluster)).topics.values()]
    cases = [
        (key, version)
        for key, api in sorted(api_table().items())
        for version in range(api.min_version, api.max_version + 1)
    ] * times
    chance.shuffle(cases)
    ended = {"answered": 0, "closed": 0}
    watched = Watched(cluster)
    wire = Wire(cluster.broker_address(1), NOBODY)
    for number, (key, version) in enumerate(cases):
        wire.socket.settimeout(CALL_TIMEOUT_S)
        frame = random_frame(chance, key, version, topic_ids)
        try:
            wire.socket.sendall(sized(frame))
            wire.answer()
            ended["answered"] += 1
        except TimeoutError:
            raise AssertionError(f"no answer to API {key} version {version}: {frame!r}") from None
        except OSError:
            ended["closed"] += 1
            wire.socket.close()
            wire = Wire(cluster.broker_address(1), NOBODY)
        if number % 20 == 0:
            watched.look()
    wire.socket.close()
    watched.close()
    assert watched.faults() == []
    assert watched.worst_s < STALL_S
    return ended


def test_f5_no_field_of_a_kafka_request_changes_anything(cluster: RunningCluster) -> None:
    before = state(cluster)
    ended = fuzz_kafka(cluster, SEED, 3)
    assert differences(before, state(cluster)) == {}
    assert ended["answered"] > 3 * ended["closed"]


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_f5_no_field_of_a_kafka_request_changes_anything_for_long(cluster: RunningCluster) -> None:
    before = state(cluster)
    for number in range(20):
        fuzz_kafka(cluster, SEED + number, 10)
    assert differences(before, state(cluster)) == {}
