"""The keys of authentication and TLS at the Kafka listeners, with Kafka's names."""

from typing import Final

from quorate.common.configuration import ConfigKey

LISTENER_SECURITY_PROTOCOL_MAP: Final = ConfigKey(
    name="listener.security.protocol.map",
    type=str,
    default="PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    is_list=True,
    doc="The security protocol of each listener, by its name: NAME:PROTOCOL,….",
)
SSL_KEYSTORE_LOCATION: Final = ConfigKey(
    name="ssl.keystore.location",
    type=str,
    default="",
    doc="A PEM file with the private key and the certificate chain of the listeners SSL and "
    "SASL_SSL. A changed file is used without a restart.",
)
SSL_TRUSTSTORE_LOCATION: Final = ConfigKey(
    name="ssl.truststore.location",
    type=str,
    default="",
    doc="A PEM file with the authorities whose client certificates are trusted.",
)
SSL_CLIENT_AUTH: Final = ConfigKey(
    name="ssl.client.auth",
    type=str,
    default="none",
    one_of=("none", "requested", "required"),
    doc="Whether clients of the listeners SSL and SASL_SSL are asked for a certificate, or must "
    "show one.",
)
SSL_PRINCIPAL_MAPPING_RULES: Final = ConfigKey(
    name="ssl.principal.mapping.rules",
    type=str,
    default="DEFAULT",
    doc="Rules that map the distinguished name of a certificate to the name of a user: "
    "RULE:pattern/replacement/[LU],…,DEFAULT. The first rule that matches applies. DEFAULT "
    "takes the name as it is.",
)
SASL_ENABLED_MECHANISMS: Final = ConfigKey(
    name="sasl.enabled.mechanisms",
    type=str,
    default="SCRAM-SHA-256,SCRAM-SHA-512",
    is_list=True,
    doc="The SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and "
    "OAUTHBEARER. With PLAIN the broker sees the password, and with OAUTHBEARER a token that "
    "others could use: use them over SASL_SSL only.",
)
SASL_SERVER_MAX_RECEIVE_SIZE: Final = ConfigKey(
    name="sasl.server.max.receive.size",
    type=int,
    default=64 << 10,
    at_least=1024,
    at_most=2**31 - 1,
    doc="The largest frame from a client that has not authenticated. A larger one closes its "
    "connection.",
)
CONNECTIONS_MAX_REAUTH_MS: Final = ConfigKey(
    name="connections.max.reauth.ms",
    type=int,
    default=0,
    at_least=0,
    doc="How long a client may go on without authenticating again (KIP-368). 0 means forever.",
)
FAILED_AUTHENTICATION_DELAY_MS: Final = ConfigKey(
    name="connection.failed.authentication.delay.ms",
    type=int,
    default=100,
    at_least=0,
    at_most=10_000,
    doc="How long after its request a client is told that it failed to authenticate.",
)
