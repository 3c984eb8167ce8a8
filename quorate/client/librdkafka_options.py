"""The security options of a client under the names of librdkafka."""

from collections.abc import Mapping

from quorate.client.admin_options import read_admin_options
from quorate.client.security import ClientSecurity, read_options


def as_librdkafka(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that concern Kafka, under the names of librdkafka.

    Raises:
        InvalidOption: an option cannot be used.
    """
    return librdkafka_settings(read_options(read_admin_options(options).others).kafka)


def librdkafka_settings(security: ClientSecurity) -> dict[str, str]:
    """Return checked options of a Kafka listener under the names of librdkafka."""
    found = {
        "security.protocol": security.protocol,
        "ssl.ca.location": security.ca,
        "ssl.certificate.location": security.certificate,
        "ssl.key.location": security.key or security.certificate,
        "ssl.endpoint.identification.algorithm": security.identification,
    }
    if security.has_user:
        found |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.username,
            "sasl.password": security.password,
        }
    return {name: value for name, value in found.items() if value}
