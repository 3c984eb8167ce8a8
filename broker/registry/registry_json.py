"""Answers of the registry as JSON."""

import json
from typing import Any


def json_bytes(answer: Any) -> bytes:  # noqa: ANN401 - any JSON
    return json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode()
