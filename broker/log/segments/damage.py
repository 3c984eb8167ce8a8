"""Errors for damaged files of a log. They name the file and the batch and say what to do."""

from pathlib import Path

from quorate.broker.common.errors import KafkaError
from quorate_proto.v1 import errors_pb2


class DamagedSegment(KafkaError):
    """A segment file that cannot be read at all."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            errors_pb2.KAFKA_STORAGE_ERROR,
            f"log segment {path}: {problem}; restore the file, or empty the log directory "
            "so that this broker fetches its logs from their leaders",
        )
        self.path = path
        self.problem = problem


class DamagedBatch(KafkaError):
    """A batch that is missing from its segment, or is not what was written there.

    ``number`` is the local number of its partition.
    """

    def __init__(self, path: Path, number: int, base_offset: int, problem: str) -> None:
        super().__init__(
            errors_pb2.KAFKA_STORAGE_ERROR,
            f"log segment {path}: the batch at offset {base_offset} of partition number {number} "
            f"is damaged: {problem}; it is not served. `quorate log verify` on the stopped broker "
            "finds all damage, `quorate log repair` cuts the log there",
        )
        self.path = path
        self.number = number
        self.base_offset = base_offset
        self.problem = problem
