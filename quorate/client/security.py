"""Options for how a client authenticates and which servers it trusts. They have librdkafka's names,
and apply to Kafka and gRPC.

    security.protocol         PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL
    ssl.ca.location           PEM file: authorities that are trusted; default: the system's
    ssl.certificate.location  PEM file: this client's certificate chain
    ssl.key.location          PEM file: its private key; default: the certificate's file
    ssl.endpoint.identification.algorithm   https (default): a server's certificate names its host;
                              none: any broker of a cluster with Quorate's own certificates will do
    sasl.mechanism            PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (default)
    sasl.username, sasl.password

An option with the prefix ``grpc.`` applies to gRPC only. ``ssl.truststore.location`` and
``ssl.keystore.location``, for one PEM file with key and chain, are accepted as well. Passwords and
keys appear in no message and no repr.
"""

import base64
import difflib
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from quorate.client.errors import QuorateError

if TYPE_CHECKING:
    import grpc

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
IDENTIFICATIONS: Final = ("https", "none")

GRPC_PREFIX: Final = "grpc."
ANY_BROKER: Final = "broker.quorate"
"""A name that every broker certificate made by `quorate certs` contains."""

_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "sasl.mechanisms": ("sasl.mechanism",),
}
OPTIONS: Final = (
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.endpoint.identification.algorithm",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
)


class InvalidOption(QuorateError, ValueError):
    """A security option cannot be used; the message names it and its allowed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """Checked security options. Files are read for each connection, so renewed files are used
    then."""

    protocol: str = PLAINTEXT
    ca: str = ""
    certificate: str = ""
    key: str = ""
    identification: str = "https"
    mechanism: str = "SCRAM-SHA-512"
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def is_encrypted(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)

    @property
    def has_user(self) -> bool:
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)

    def wrap(self, connection: socket.socket, host: str) -> socket.socket:
        """Return the connection to a Kafka listener, encrypted if the options require it.

        Raises:
            InvalidOption: a file cannot be used.
            OSError: the handshake failed.
        """
        if not self.is_encrypted:
            return connection
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            context.check_hostname = self.identification == "https"
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(one for one in (self.ca, self.certificate, self.key) if one)
            raise InvalidOption(f"cannot use {files} for TLS: {error}") from error
        return context.wrap_socket(connection, server_hostname=host)

    def channel_credentials(self) -> "grpc.ChannelCredentials | None":
        """Return the credentials for gRPC, or None for plain text.

        Raises:
            InvalidOption: a file cannot be read.
        """
        if not self.is_encrypted:
            return None
        import grpc

        from quorate.client.lasting_channel import keep_a_channel

        certificate = _content("ssl.certificate.location", self.certificate)
        credentials = grpc.ssl_channel_credentials(
            root_certificates=_content("ssl.ca.location", self.ca),
            private_key=_content("ssl.key.location", self.key) or certificate,
            certificate_chain=certificate,
        )
        if not self.has_user:
            return credentials
        keep_a_channel()
        user = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return grpc.composite_channel_credentials(
            credentials, grpc.metadata_call_credentials(_basic(user))
        )

    def channel_options(self) -> tuple[tuple[str, str], ...]:
        """Return the options that a gRPC channel needs in addition to the credentials."""
        if self.is_encrypted and self.identification == "none":
            return (("grpc.ssl_target_name_override", ANY_BROKER),)
        return ()


@dataclass(frozen=True, slots=True)
class Securities:
    """The security of one client: for the Kafka listeners through which it finds the cluster, and
    for gRPC."""

    kafka: ClientSecurity = ClientSecurity()
    grpc: ClientSecurity = ClientSecurity()


def read_options(options: Mapping[str, str]) -> Securities:
    """Check the options, and return the security of the client.

    Raises:
        InvalidOption: an option is unknown, has a wrong value, or lacks another option that it
            needs.
    """
    common: dict[str, str] = {}
    for_grpc: dict[str, str] = {}
    for name, value in options.items():
        bare = name.removeprefix(GRPC_PREFIX)
        for known in _SYNONYMS.get(bare, (bare,)):
            if known not in OPTIONS:
                raise InvalidOption(_unknown(name))
            (for_grpc if name.startswith(GRPC_PREFIX) else common)[known] = value
    return Securities(_checked(common, ""), _checked({**common, **for_grpc}, GRPC_PREFIX))


def is_security_option(name: str) -> bool:
    """Return whether ``read_options`` knows the option."""
    bare = name.removeprefix(GRPC_PREFIX)
    return bare in OPTIONS or bare in _SYNONYMS


def _checked(values: Mapping[str, str], prefix: str) -> ClientSecurity:
    protocol = _one_of(values, "security.protocol", PROTOCOLS, PLAINTEXT, upper=True)
    if protocol == SASL_PLAINTEXT and prefix:
        # Passwords are not sent over gRPC in clear text. Such a cluster also serves gRPC in plain
        # text, without passwords.
        protocol = PLAINTEXT
    found = ClientSecurity(
        protocol=protocol,
        ca=values.get("ssl.ca.location", ""),
        certificate=values.get("ssl.certificate.location", ""),
        key=values.get("ssl.key.location", ""),
        identification=_one_of(
            values, "ssl.endpoint.identification.algorithm", IDENTIFICATIONS, "https"
        ),
        mechanism=_one_of(values, "sasl.mechanism", MECHANISMS, "SCRAM-SHA-512", upper=True),
        username=values.get("sasl.username", ""),
        password=values.get("sasl.password", ""),
    )
    if found.has_user and not (found.username and found.password):
        raise InvalidOption(
            f"{prefix}security.protocol={protocol} needs sasl.username and sasl.password"
        )
    if found.key and not found.certificate:
        raise InvalidOption("ssl.key.location needs ssl.certificate.location")
    return found


def _one_of(
    values: Mapping[str, str],
    name: str,
    allowed: tuple[str, ...],
    default: str,
    *,
    upper: bool = False,
) -> str:
    given = values.get(name, default)
    value = given.upper() if upper else given.lower()
    if value not in allowed:
        raise InvalidOption(f"{name} is {given!r}: it may be {', '.join(allowed)}")
    return value


def _unknown(name: str) -> str:
    known = [*OPTIONS, *_SYNONYMS]
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(OPTIONS)}"
    return f"unknown security option {name!r}: {hint}"


def _content(name: str, path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidOption(f"{name}={path}: {error.strerror}") from error


def _basic(user: str) -> Any:  # noqa: ANN401 - a plugin of grpc, typed nowhere
    def plugin(_context: object, callback: Any) -> None:  # noqa: ANN401 - as above
        callback((("authorization", f"Basic {user}"),), None)

    return plugin
