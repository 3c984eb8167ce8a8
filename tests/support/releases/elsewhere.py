"""The metadata log of another release, in a process of its own."""

import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from quorate.common.types import MetadataOffset
from quorate.metadata_log.image import Image
from quorate.metadata_log.snapshot.snapshot import decode_snapshot, encode_snapshot
from tests.support.installed_wheel import InstalledWheel

PROGRAM: Final = Path(__file__).with_name("apply_there.py")


class Elsewhere:
    """Runs ``apply_there.py`` with the Python of the release until it is left."""

    def __init__(self, release: InstalledWheel) -> None:
        self._release = release

    def __enter__(self) -> "Elsewhere":
        self._process = subprocess.Popen(
            [self._release.python, "-P", PROGRAM],
            env=self._release.environment,
            cwd=self._release.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def apply(
        self, image: Image, entries: Sequence[tuple[MetadataOffset, bytes]]
    ) -> tuple[Image, list[list[int] | None]]:
        """Return the image after the entries, and the codes of each one's results; None for one
        that the release cannot read.
        """
        asked = {
            "snapshot": b64encode(b"".join(encode_snapshot(image))).decode(),
            "transactions": [(offset, b64encode(one).decode()) for offset, one in entries],
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return decode_snapshot([b64decode(answer["snapshot"])]), answer["codes"]
