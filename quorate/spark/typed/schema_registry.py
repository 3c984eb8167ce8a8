"""A client of a schema registry with Confluent's REST API: schemas by id, and of subjects.

The driver asks for the schema of a subject when it plans, the executors for the schemas of writers
when they meet their ids. A schema never changes, so each is asked for once per process. Every call
has a timeout and a bounded number of retries.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

import base64
import functools
import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from quorate.spark.errors import ClusterUnavailable, RegistryUnavailable, ValueSchemaError
from quorate.spark.typed.registry_settings import (
    AVRO,
    ReferencedSchema,
    RegisteredSchema,
    RegistrySettings,
)

TIMEOUT_SECONDS: Final = 10.0
RESPONSE_BYTES_MAX: Final = 16 << 20
REFERENCES_MAX: Final = 1000
"""The most schemas that one schema may refer to, directly or not."""
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})


class NoSuchSchema(ValueSchemaError, LookupError):
    """The registry has no schema of this id or subject."""


class SchemaRegistry:
    """A client of one registry. It keeps no connection open between two calls."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._by_id: dict[int, RegisteredSchema] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of an id.

        Raises:
            NoSuchSchema: the registry does not have it.
            RegistryUnavailable: no answer within the retries, or a refusal.
        """
        known = self._by_id.get(schema_id)
        if known is None:
            found = self._get(f"/schemas/ids/{schema_id}", f"schema {schema_id}")
            known = self._by_id[schema_id] = self._registered({**found, "id": schema_id})
        return known

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest schema of a subject.

        Raises:
            NoSuchSchema: the registry does not have the subject.
            RegistryUnavailable: no answer within the retries, or a refusal.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        return self._registered(self._get(path, f"subject {subject!r}"))

    def register(self, subject: str, type_: str, text: str) -> int:
        """Register a schema unless the subject has it, and return its id.

        Raises:
            ValueSchemaError: the registry refuses the schema: it is malformed or incompatible.
            RegistryUnavailable: no answer within the retries, or a refusal.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        body = {"schema": text, "schemaType": type_}
        answer = self._call("POST", path, f"subject {subject!r}", json.dumps(body).encode())
        return _whole_number(answer, "id")

    def _registered(self, answer: Mapping[str, Any]) -> RegisteredSchema:
        references: dict[str, ReferencedSchema] = {}
        try:
            self._add_references(answer, references)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ValueSchemaError):
                raise
            raise RegistryUnavailable(f"{self._named()} gives a malformed reference") from error
        text = answer.get("schema")
        if not isinstance(text, str):
            raise RegistryUnavailable(f"{self._named()} answered without a schema: is it one?")
        type_ = answer.get("schemaType") or AVRO
        schema_id = _whole_number(answer, "id") if "id" in answer else 0
        return RegisteredSchema(schema_id, str(type_), text, tuple(references.values()))

    def _add_references(
        self, answer: Mapping[str, Any], references: dict[str, ReferencedSchema]
    ) -> None:
        for reference in answer.get("references") or ():
            name, subject, version = (reference[key] for key in ("name", "subject", "version"))
            if name in references:
                continue
            if len(references) >= REFERENCES_MAX:
                raise ValueSchemaError(f"a schema refers to more than {REFERENCES_MAX} others")
            path = f"/subjects/{quote(subject, safe='')}/versions/{int(version)}"
            found = self._get(path, f"subject {subject!r} version {version}")
            references[name] = ReferencedSchema(name, "")  # It may not refer to itself.
            self._add_references(found, references)
            del references[name]
            references[name] = ReferencedSchema(name, str(found["schema"]))

    def _get(self, path: str, what: str) -> Mapping[str, Any]:
        return self._call("GET", path, what, None)

    def _call(self, method: str, path: str, what: str, body: bytes | None) -> Mapping[str, Any]:
        retries = self._settings.retry_policy.new_retries()
        urls = self._settings.urls
        attempt = 0
        while True:
            url = urls[attempt % len(urls)]
            attempt += 1
            try:
                status, answer = self._exchange(method, url, path, body)
            except (OSError, http.client.HTTPException) as error:
                reason = str(error) or type(error).__name__
            else:
                if status == 200:
                    return _json_object(answer, url)
                reason = f"status {status}: {_message(answer)}"
                self._refuse(status, what, url, reason)
            if attempt % len(urls) == 0:
                try:
                    retries.pause(f"asking the schema registry at {url} for {what}", reason)
                except ClusterUnavailable as spent:
                    raise RegistryUnavailable(str(spent)) from None

    def _refuse(self, status: int, what: str, url: str, reason: str) -> None:
        if status in _RETRIED:
            return
        if status == 404:
            raise NoSuchSchema(f"the schema registry at {url} has no {what} ({reason})")
        if status in (409, 422):
            raise ValueSchemaError(f"the schema registry at {url} refuses {what}: {reason}")
        advice = " (schema.registry.basic.auth.user.info)" if status in (401, 403) else ""
        raise RegistryUnavailable(
            f"the schema registry at {url} does not answer for {what}{advice}: {reason}"
        )

    def _exchange(self, method: str, url: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Send one request, and return the status and the body of the response."""
        parts = urlsplit(url)
        connection = self._connection(parts.scheme, parts.hostname or "", parts.port)
        try:
            connection.request(method, parts.path.rstrip("/") + path, body, self._headers())
            response = connection.getresponse()
            answer = response.read(RESPONSE_BYTES_MAX + 1)
            if len(answer) > RESPONSE_BYTES_MAX:
                raise http.client.HTTPException(f"more than {RESPONSE_BYTES_MAX} bytes")
            return response.status, answer
        finally:
            connection.close()

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        context = _tls(self._settings)
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": CONTENT_TYPE, "Content-Type": CONTENT_TYPE}
        if self._settings.user_info:
            encoded = base64.b64encode(self._settings.user_info.encode()).decode()
            headers["Authorization"] = f"Basic {encoded}"
        elif self._settings.bearer_token:
            headers["Authorization"] = f"Bearer {self._settings.bearer_token}"
        return headers

    def _named(self) -> str:
        return f"the schema registry at {', '.join(self._settings.urls)}"


@functools.lru_cache(maxsize=8)
def registry_of(settings: RegistrySettings) -> SchemaRegistry:
    """Return this process's client of a registry, with the schemas that it has asked for."""
    return SchemaRegistry(settings)


@functools.lru_cache(maxsize=8)
def _tls(settings: RegistrySettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.ca_location or None)
    if settings.certificate_location:
        context.load_cert_chain(settings.certificate_location, settings.key_location or None)
    return context


def _json_object(answer: bytes, url: str) -> Mapping[str, Any]:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RegistryUnavailable(f"what answers at {url} is no schema registry: {answer[:80]!r}")
    return found


def _whole_number(answer: Mapping[str, Any], key: str) -> int:
    number = answer.get(key)
    if not isinstance(number, int) or isinstance(number, bool):
        raise RegistryUnavailable(f"the schema registry answered with {key} {number!r}")
    return number


def _message(answer: bytes) -> str:
    """Return the message of an error."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and found.get("message"):
        return str(found["message"])[:300]
    return answer[:200].decode("utf-8", "replace")
