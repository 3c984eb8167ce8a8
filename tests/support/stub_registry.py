"""A schema registry in a thread of this process: the part of Confluent's API that clients use."""

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from quorate.spark.typed.schema_registry import registry_of


class StubRegistry:
    """Subjects and their versions; a context manager that serves them on a free port."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and Authorization of each request."""
        self.refuse: Callable[[str], tuple[int, Any] | None] = lambda path: None
        """Returns the status and body of a refusal for a path, or None."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        # Another one may have had the same port.
        registry_of.cache_clear()
        self._thread.start()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def add(
        self,
        subject: str,
        schema: object,
        type_: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Register a schema, and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        about: dict[str, Any] = {"schema": text}
        if type_ != "AVRO":
            about["schemaType"] = type_
        if references:
            about["references"] = references
        versions = self.subjects.setdefault(subject, [])
        for schema_id in versions:
            if self.schemas[schema_id] == about:
                return schema_id
        schema_id = len(self.schemas) + 1
        self.schemas[schema_id] = about
        versions.append(schema_id)
        return schema_id

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Return the status and the body of a response."""
        if (refusal := self.refuse(path)) is not None:
            return refusal
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            known = self.schemas.get(int(found[1]))
            return (200, known) if known else (404, {"error_code": 40403, "message": "not found"})
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(\w+)", path):
            versions = self.subjects.get(unquote(found[1]), [])
            number = len(versions) if found[2] == "latest" else int(found[2])
            if not 1 <= number <= len(versions):
                return 404, {"error_code": 40401, "message": "Subject not found."}
            schema_id = versions[number - 1]
            return 200, {"id": schema_id, "version": number, **self.schemas[schema_id]}
        if (found := re.fullmatch(r"/subjects/([^/]+)/versions", path)) and method == "POST":
            given = json.loads(body)
            return 200, {
                "id": self.add(unquote(found[1]), given["schema"], given.get("schemaType", "AVRO"))
            }
        return 404, {"error_code": 404, "message": "no such path"}


def framed(schema_id: int, record: bytes) -> bytes:
    """A record with the prefix that Confluent's serializers write."""
    return b"\0" + schema_id.to_bytes(4, "big") + record


def _handler(registry: StubRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            registry.requests.append(
                (self.command, self.path, self.headers.get("Authorization", ""))
            )
            status, answer = registry.answer(self.command, self.path, body)
            encoded = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

    return Handler
