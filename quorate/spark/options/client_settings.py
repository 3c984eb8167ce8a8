"""Options that start with ``kafka.``: the settings of Kafka's own clients.

Security settings are applied, under the names of librdkafka or of Java. Settings that would
silently change the rows are refused. Settings that only tune Kafka's client have no effect here. A
name that no Kafka client knows is refused: a misspelt ``kafka.security.protocol`` must not lead to
plain text.
"""

import re
from collections.abc import Mapping
from typing import Final

from quorate.client.security import (
    OPTIONS,
    InvalidOption,
    Securities,
    is_security_option,
    read_options,
)
from quorate.spark.errors import OptionError

PREFIX: Final = "kafka."

_PEM = "certificates and keys are PEM files: `openssl pkcs12 -in store.p12 -out store.pem -nodes`"
_FILES = (
    "give a file: kafka.ssl.ca.location, kafka.ssl.certificate.location, kafka.ssl.key.location"
)
REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "use commitGroup, which commits what has been read",
    "key.deserializer": "keys are binary: decode them with DataFrame operations",
    "value.deserializer": "values are binary: decode them with DataFrame operations",
    "key.serializer": "keys are written as they are: encode them with DataFrame operations",
    "value.serializer": "values are written as they are: encode them with DataFrame operations",
    "partitioner.class": "keys decide as in Kafka's own producers; fill the column partition",
    "partitioner.ignore.keys": "write without the column key, or fill the column partition",
    "transactional.id": "there are no transactions: writes are at least once",
    "interceptor.classes": "the source reads the log as it is",
    "ssl.key.password": "the key must be without a password, in a file that only its owner reads",
    "ssl.keystore.key": _FILES,
    "ssl.keystore.certificate.chain": _FILES,
    "ssl.truststore.certificates": _FILES,
}
"""The refused settings, by their names without the prefix, and the advice what to do instead."""

_TUNING = """
allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter check.crcs
client.dns.lookup client.id client.rack connections.max.idle.ms default.api.timeout.ms
enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
max.partition.fetch.bytes max.poll.interval.ms max.poll.records
metadata.max.age.ms metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms
metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
retry.backoff.max.ms retry.backoff.ms security.providers send.buffer.bytes
session.timeout.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
ssl.cipher.suites ssl.enabled.protocols ssl.engine.factory.class ssl.keymanager.algorithm
ssl.keystore.password ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.password acks buffer.memory compression.gzip.level
compression.lz4.level compression.zstd.level enable.idempotence linger.ms max.block.ms
max.in.flight.requests.per.connection max.request.size metadata.max.idle.ms
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms retries
transaction.timeout.ms transaction.two.phase.commit.enable
"""
WITHOUT_EFFECT: Final = frozenset(_TUNING.split())
"""Settings of Kafka's consumer and producer that have no counterpart here."""

_JAAS = "sasl.jaas.config"
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_STORES = ("ssl.truststore.location", "ssl.keystore.location")
_IDENTIFICATION = "ssl.endpoint.identification.algorithm"
_JAVA_NAMES = (_JAAS, *_STORE_TYPES, *_STORES)
_JAAS_MODULES = ("PlainLoginModule", "ScramLoginModule")
_JAAS_FIELD = re.compile(r"\b(username|password)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)')")


def is_known_setting(key: str) -> bool:
    """Return True if a Kafka client has the setting. ``key`` is in lower case, with the prefix."""
    name = key.removeprefix(PREFIX)
    return key.startswith(PREFIX) and (
        is_security_option(name) or name in _JAVA_NAMES or name in REFUSED or name in WITHOUT_EFFECT
    )


def known_settings() -> list[str]:
    """Return all known names with the prefix: what a misspelt name may have meant."""
    return [PREFIX + name for name in (*OPTIONS, *_JAVA_NAMES, *REFUSED, *WITHOUT_EFFECT)]


def check_client_settings(settings: Mapping[str, str]) -> list[str]:
    """Refuse settings that cannot be applied, and return the names of those without effect.

    Args:
        settings: the settings by their names without the prefix, in lower case.

    Raises:
        OptionError: names the option and what to do.
    """
    for key in settings:
        if advice := REFUSED.get(key):
            raise OptionError(f"option {PREFIX}{key} is not supported: {advice}")
    return [PREFIX + key for key in settings if key in WITHOUT_EFFECT]


def securities_of(settings: Mapping[str, str]) -> Securities:
    """Return the identity of the client and the brokers it trusts, from checked settings.

    Raises:
        OptionError: names the option, its value unless it is a secret, and what it may be.
    """
    given = {key: value for key, value in settings.items() if is_security_option(key)}
    _refuse_java_stores(settings)
    if not given.get(_IDENTIFICATION, "https").strip():
        given[_IDENTIFICATION] = "none"  # Java's client writes this as an empty text.
    if jaas := settings.get(_JAAS):
        given = {**_credentials_of(jaas), **given}
    try:
        return read_options(given)
    except InvalidOption as error:
        raise OptionError(f"among the {PREFIX}… options: {error}") from None


def _refuse_java_stores(settings: Mapping[str, str]) -> None:
    for name in _STORE_TYPES:
        if settings.get(name, "PEM").upper() != "PEM":
            raise OptionError(f"option {PREFIX}{name} is {settings[name]!r}: {_PEM}")
    for name in _STORES:
        if settings.get(name, "").lower().endswith((".jks", ".p12", ".pfx")):
            raise OptionError(f"option {PREFIX}{name} is {settings[name]!r}: {_PEM}")


def _credentials_of(jaas: str) -> dict[str, str]:
    """Return the user and password of a JAAS line.

    It looks like ``….ScramLoginModule required username="…" password="…";``.
    """
    fields = {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        for name, quoted, plain in _JAAS_FIELD.findall(jaas)
    }
    if not any(module in jaas for module in _JAAS_MODULES) or len(fields) != 2:
        raise OptionError(
            f"option {PREFIX}{_JAAS} must be one of {', '.join(_JAAS_MODULES)} with username and "
            f"password; or give {PREFIX}sasl.username and {PREFIX}sasl.password"
        )
    return {f"sasl.{name}": value for name, value in fields.items()}
