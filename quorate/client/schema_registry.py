"""A client of a schema registry, by Confluent's REST API: Quorate's, or another one."""

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Final

from quorate.client.errors import QuorateError

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_ANSWER_BYTES_MAX: Final = 64 << 20


class RegistryRefused(QuorateError):
    """The registry refused a request. ``status`` is HTTP's, and ``code`` the registry's own."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code


class SchemaRegistry:
    """Sends requests to the first of several URLs that answers."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        timeout_ms: int,
        username: str = "",
        password: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """With ``username`` the client logs in by HTTP Basic."""
        self._urls = [one.rstrip("/") for one in urls]
        self._timeout_s = timeout_ms / 1_000
        self._headers = {"Accept": CONTENT_TYPE, "Content-Type": CONTENT_TYPE}
        if username:
            pair = base64.b64encode(f"{username}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        self._tls = tls

    def ask(
        self,
        method: str,
        *parts: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever JSON is answered
        """Return the answer to a request. ``parts`` are the parts of its path.

        Raises:
            RegistryRefused: the registry has an error code for it.
            QuorateError: no URL was reached.
        """
        path = "/".join(urllib.parse.quote(part, safe="") for part in parts)
        suffix = f"?{urllib.parse.urlencode(query)}" if query else ""
        data = None if body is None else json.dumps(body).encode()
        problems = []
        for url in self._urls:
            request = urllib.request.Request(
                f"{url}/{path}{suffix}", data=data, headers=self._headers, method=method
            )
            try:
                return self._answer(request)
            except (OSError, ValueError) as error:
                problems.append(f"{url}: {error}")
        raise QuorateError(f"no schema registry answered: {'; '.join(problems)}")

    def _answer(self, request: urllib.request.Request) -> Any:  # noqa: ANN401 - as above
        try:
            with urllib.request.urlopen(
                request, timeout=self._timeout_s, context=self._tls
            ) as answer:
                return json.loads(answer.read(_ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error.code, error.read(_ANSWER_BYTES_MAX)) from None


def _refusal(status: int, body: bytes) -> RegistryRefused:
    try:
        found = json.loads(body)
        return RegistryRefused(status, int(found["error_code"]), str(found["message"]))
    except (ValueError, KeyError, TypeError):
        return RegistryRefused(status, status, "the answer is not that of a schema registry")
