"""Attacks that strangers send to a port. Each has a loopback address of its own, to be told
apart."""

import contextlib
import os
import pickle
import random
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from quorate.common.types import ID_BYTES
from quorate.quorum.raft.network.raft_frames import PROTOCOL_FORMAT, frame_bytes
from quorate_proto.v1.raft_pb2 import RaftFrame, RaftHello

PATIENCE_S = 10.0
HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)


class Stranger(msgspec.Struct, frozen=True):
    """Somebody at ``host`` who attacks ``port``, with the keystores of a folder at hand."""

    host: str
    port: int
    certificates: Path
    mark: Path
    """A file that appears if anything sent is executed."""
    cluster_id: str

    def connect(self) -> socket.socket:
        """A connection that is reset when it is closed."""
        sock = socket.create_connection(
            ("127.0.0.1", self.port), timeout=PATIENCE_S, source_address=(self.host, 0)
        )
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return sock

    def send(self, data: bytes) -> None:
        """Send in plain text, and no more than that; return once the other side has closed."""
        with contextlib.suppress(OSError), self.connect() as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            _read_to_end(sock)

    def send_and_reset(self, data: bytes) -> None:
        """The same, but gone at once: perhaps before anybody looked who it was."""
        with contextlib.suppress(OSError), self.connect() as sock:
            sock.sendall(data)

    def send_in_tls(self, data: bytes, keystore: str | None) -> None:
        """Send as ``send`` does, over TLS with that keystore of the folder, or without a
        certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if keystore is not None:
            context.load_cert_chain(self.certificates / f"{keystore}.pem")
        with contextlib.suppress(OSError), context.wrap_socket(self.connect()) as sock:
            sock.sendall(data)
            _read_to_end(sock)

    def pickled_command(self) -> bytes:
        return pickle.dumps(_Touch(self.mark), protocol=2)

    def hello_of(self, voter_id: int) -> bytes:
        hello = RaftHello(
            cluster_id=self.cluster_id,
            voter_id=voter_id,
            format=PROTOCOL_FORMAT,
            directory_id=bytes(ID_BYTES),
        )
        return frame_bytes(RaftFrame(hello=hello))


class _Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self._path}",)


Attack = Callable[[Stranger], None]


def random_bytes(stranger: Stranger) -> None:
    source = random.Random(stranger.host)
    for size in (1, 3, 5, 100, 5_000, 100_000):
        stranger.send(source.randbytes(size))


def half_frames(stranger: Stranger) -> None:
    frame = stranger.hello_of(2)
    for end in (1, 4, 5, len(frame) - 1):
        stranger.send(frame[:end])


def two_gib_lengths(stranger: Stranger) -> None:
    for length in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"):
        stranger.send(length + bytes(100_000))


def two_gib_lengths_in_tls(stranger: Stranger) -> None:
    stranger.send_in_tls(b"\x7f\xff\xff\xff" + bytes(100_000), "broker-1")


def more_than_a_hello_in_tls(stranger: Stranger) -> None:
    stranger.send_in_tls((5_000).to_bytes(4, "big") + bytes(5_000), "broker-1")


def pickles(stranger: Stranger) -> None:
    pickled = stranger.pickled_command()
    for data in (pickled, len(pickled).to_bytes(4, "big") + pickled):
        stranger.send(data)
        stranger.send(len(data).to_bytes(4, "little") + data)


def pickles_in_tls(stranger: Stranger) -> None:
    pickled = stranger.pickled_command()
    for data in (pickled, len(pickled).to_bytes(4, "big") + pickled):
        stranger.send_in_tls(data, "broker-1")


def truncated_tls(stranger: Stranger) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="voter.quorate").do_handshake()
    hello = outgoing.read()
    for end in (3, 5, len(hello) // 2, len(hello)):
        stranger.send(hello[:end])


def plain_text(stranger: Stranger) -> None:
    stranger.send(stranger.hello_of(2))
    stranger.send(HTTP2_PREFACE)
    stranger.send(b"GET / HTTP/1.1\r\n\r\n")


def no_certificate(stranger: Stranger) -> None:
    stranger.send_in_tls(stranger.hello_of(2), None)


def another_authority(stranger: Stranger) -> None:
    stranger.send_in_tls(stranger.hello_of(2), "of-another-authority")


def expired(stranger: Stranger) -> None:
    stranger.send_in_tls(stranger.hello_of(2), "expired")


def broker_as_voter(stranger: Stranger) -> None:
    stranger.send_in_tls(stranger.hello_of(2), "broker-1")


def voter_as_another(stranger: Stranger) -> None:
    stranger.send_in_tls(stranger.hello_of(3), "voter-2")


ON_BOTH_PORTS: Final[tuple[Attack, ...]] = (
    random_bytes,
    half_frames,
    two_gib_lengths,
    pickles,
    truncated_tls,
    plain_text,
    no_certificate,
    another_authority,
    expired,
)
ON_THE_RAFT_PORT: Final[tuple[Attack, ...]] = (
    two_gib_lengths_in_tls,
    more_than_a_hello_in_tls,
    pickles_in_tls,
    broker_as_voter,
    voter_as_another,
)


def _read_to_end(sock: socket.socket) -> None:
    while sock.recv(65_536):
        pass
