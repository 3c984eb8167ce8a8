"""Frames between voters: u32 big-endian length, then a protobuf ``RaftFrame`` (P9, P12).

The library speaks in dictionaries; here they become typed messages and back. A frame that does not
decode to exactly one of the known messages, with the fields that message must have, is refused. The
library's utility messages, forwarded commands and cluster changes have no form here at all.
"""

from itertools import count
from typing import Any, Final

from google.protobuf.message import DecodeError

from quorate.quorum.raft.storage.journal import RaftEntry
from quorate_proto.v1.raft_pb2 import (
    RaftEntries,
    RaftFrame,
    RaftHello,
    RaftMessage,
    RaftRefusal,
)

PROTOCOL_FORMAT: Final = 1
MAX_FRAME_BYTES: Final = 16 << 20
"""Twice the largest batch of entries. A longer frame is an error or an attack."""

LENGTH_BYTES: Final = 4

REGULAR: Final = 0
NO_OP_KIND: Final = 1
_KIND_BYTES: Final = {bytes([REGULAR]), bytes([NO_OP_KIND])}

_LENGTH_DELIMITED: Final = 2
_MESSAGE_TAG: Final = bytes([RaftFrame.MESSAGE_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
_ENTRIES_TAG: Final = bytes([RaftMessage.ENTRIES_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])

Message = dict[str, Any]
"""A message as the library has it."""


class MalformedRaftFrame(ValueError):
    """A peer sent bytes that are not a frame of this protocol."""


def frame_bytes(frame: RaftFrame) -> bytes:
    """Return the frame with its length in front."""
    body = frame.SerializeToString()
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def encode_hello(hello: RaftHello) -> bytes:
    """Return the frame with which a connection begins."""
    return frame_bytes(RaftFrame(hello=hello))


def encode_refusal(refusal: RaftRefusal) -> bytes:
    """Return the last frame to a peer with which this voter does not talk."""
    return frame_bytes(RaftFrame(refusal=refusal))


def decode_frame(body: bytes) -> RaftHello | RaftRefusal | Message:
    """Decode the frame ``body``, from which the length was taken off.

    Raises:
        MalformedFrame: not a frame, or a message that lacks what it must have.
    """
    try:
        frame = RaftFrame.FromString(body)
    except DecodeError as error:
        raise MalformedRaftFrame(f"{len(body)} bytes are no frame: {error}") from error
    kind = frame.WhichOneof("kind")
    if kind == "hello":
        return frame.hello
    if kind == "refusal":
        return frame.refusal
    if kind == "message":
        return _decode_message(frame.message)
    raise MalformedRaftFrame("a frame of a kind this version does not know")


class MessageEncoder:
    """Encodes the library's messages. The same entries for several followers are
    encoded only once.
    """

    def __init__(self) -> None:
        self._cached_ends: tuple[RaftEntry, RaftEntry] | None = None
        self._cached_entries = b""

    def encode(self, message: Message) -> bytes:
        """Return the frame of a message of the library, length included.

        Raises:
            ValueError: a message that must never leave this process.
        """
        kind = message["type"]
        encoded = RaftMessage(type=kind, term=message["term"])
        entries = b""
        match kind:
            case "append_entries":
                entries = self._append_entries(encoded, message)
                _encode_sent(encoded, message)
            case "next_node_idx":
                encoded.next_node_index = message["next_node_idx"]
                encoded.reset = message["reset"]
                encoded.success = message["success"]
                _encode_sent(encoded, message)
            case "request_vote" | "pre_vote":
                encoded.last_log_index = message["last_log_index"]
                encoded.last_log_term = message["last_log_term"]
            case "response_vote" | "response_pre_vote" | "timeout_now":
                pass
            case _:
                raise ValueError(f"message {kind!r} is never sent")
        if not entries:
            return frame_bytes(RaftFrame(message=encoded))
        # Written as protobuf does, but the entries are not written again for each follower.
        content = encoded.SerializeToString()
        head = _MESSAGE_TAG + _varint(len(content) + len(entries))
        length = len(head) + len(content) + len(entries)
        return b"".join((length.to_bytes(LENGTH_BYTES, "big"), head, content, entries))

    def _append_entries(self, encoded: RaftMessage, message: Message) -> bytes:
        """Set all fields but the entries, and return the encoded field of the entries, if there are
        any.
        """
        encoded.commit_index = message["commit_index"]
        if "prevLogIdx" not in message:
            chunk = message["serialized"]
            if chunk is not None:
                encoded.snapshot_chunk, encoded.snapshot_first, encoded.snapshot_last = chunk
            return b""
        encoded.prev_log_index = message["prevLogIdx"]
        encoded.prev_log_term = message["prevLogTerm"]
        entries: list[RaftEntry] = message["entries"]
        return self._columns(entries) if entries else b""

    def _columns(self, entries: list[RaftEntry]) -> bytes:
        """Return the encoded entries. By Raft's log matching, the same first and last entry mean
        the same entries between.
        """
        ends = (entries[0], entries[-1])
        cached = self._cached_ends
        if cached is None or cached[0] is not ends[0] or cached[1] is not ends[1]:
            self._cached_ends = ends
            columns = RaftEntries(
                first_index=entries[0][1],
                terms=[term for _, _, term in entries],
                commands=[command for command, _, _ in entries],
            ).SerializeToString()
            self._cached_entries = _ENTRIES_TAG + _varint(len(columns)) + columns
        return self._cached_entries


def _encode_sent(encoded: RaftMessage, message: Message) -> None:
    if "sent_s" in message:
        encoded.sent_s = message["sent_s"]


def _varint(value: int) -> bytes:
    """Return a length as protobuf writes it."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _decode_message(message: RaftMessage) -> Message:
    if message.term < 0:
        raise MalformedRaftFrame(f"term {message.term} is negative")
    decoded: Message = {"type": message.type, "term": message.term}
    match message.type:
        case "append_entries":
            _decode_append_entries(message, decoded)
            _decode_sent(message, decoded)
        case "next_node_idx":
            if message.next_node_index < 1:
                raise MalformedRaftFrame(f"next index {message.next_node_index} is below 1")
            decoded["next_node_idx"] = message.next_node_index
            decoded["reset"] = message.reset
            decoded["success"] = message.success
            _decode_sent(message, decoded)
        case "request_vote" | "pre_vote":
            decoded["last_log_index"] = message.last_log_index
            decoded["last_log_term"] = message.last_log_term
        case "response_vote" | "response_pre_vote" | "timeout_now":
            pass
        case _:
            raise MalformedRaftFrame(f"message {message.type!r} is not one that voters exchange")
    return decoded


def _decode_sent(message: RaftMessage, decoded: Message) -> None:
    if message.HasField("sent_s"):
        decoded["sent_s"] = message.sent_s


def _decode_append_entries(message: RaftMessage, decoded: Message) -> None:
    decoded["commit_index"] = message.commit_index
    if message.HasField("prev_log_index"):
        decoded["prevLogIdx"] = message.prev_log_index
        decoded["prevLogTerm"] = message.prev_log_term
        decoded["entries"] = _decode_entries(message.entries)
        if decoded["entries"] and decoded["entries"][0][1] != message.prev_log_index + 1:
            raise MalformedRaftFrame(
                f"entries from {decoded['entries'][0][1]} do not follow {message.prev_log_index}"
            )
    elif message.HasField("snapshot_chunk"):
        chunk = (message.snapshot_chunk, message.snapshot_first, message.snapshot_last)
        decoded["serialized"] = chunk
    else:
        decoded["serialized"] = None


def _decode_entries(entries: RaftEntries) -> list[RaftEntry]:
    if len(entries.terms) != len(entries.commands):
        raise MalformedRaftFrame(f"{len(entries.terms)} terms for {len(entries.commands)} entries")
    commands = list(entries.commands)
    if not {command[:1] for command in commands} <= _KIND_BYTES:
        raise MalformedRaftFrame(f"entries from {entries.first_index} on: a kind no voter writes")
    return list(zip(commands, count(entries.first_index), entries.terms, strict=False))
