"""Applies transactions with the metadata log of the release in whose environment this runs.

It reads lines of JSON: a snapshot, and transactions with their offsets. It answers each with the
snapshot after them and the codes of their results, null where the release knows no such
transaction. It is started by path, so it imports nothing of the tests.
"""

import json
import sys
from base64 import b64decode, b64encode
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

IS_RELEASE_0_1: Final = find_spec("quorate.metadata_log") is None
"""Its packages are top-level ones."""

ROOT: Final = "metadata_log" if IS_RELEASE_0_1 else "quorate.metadata_log"
apply = import_module(f"{ROOT}.apply")
codec = import_module(f"{ROOT}.codec")
snapshot = import_module(f"{ROOT}.snapshot" if IS_RELEASE_0_1 else f"{ROOT}.snapshot.snapshot")


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    image = snapshot.decode_snapshot([b64decode(asked["snapshot"])])
    codes: list[list[int] | None] = []
    for offset, encoded in asked["transactions"]:
        try:
            transaction = codec.decode_transaction(b64decode(encoded))
        except codec.MalformedTransaction:
            codes.append(None)
            continue
        applied = apply.apply(image, offset, transaction)
        image = applied.image
        codes.append([result.code.value for result in applied.result.results])
    encoded_image = b"".join(snapshot.encode_snapshot(image))
    return {"snapshot": b64encode(encoded_image).decode(), "codes": codes}


for line in sys.stdin:
    sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
    sys.stdout.flush()
