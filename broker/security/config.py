"""The keys by which a broker is told whom to let in; Kafka's names."""

from typing import Final

from metadata_log.configuration import ConfigKey

LISTENER_SECURITY_PROTOCOL_MAP: Final = ConfigKey(
    name="listener.security.protocol.map",
    type=str,
    default="PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    is_list=True,
    doc="How each listener is protected, by its name: NAME:PROTOCOL,….",
)
SSL_KEYSTORE_LOCATION: Final = ConfigKey(
    name="ssl.keystore.location",
    type=str,
    default="",
    doc="PEM file: private key and certificate chain of the listeners SSL and SASL_SSL. A changed "
    "file is taken up without a restart.",
)
SSL_TRUSTSTORE_LOCATION: Final = ConfigKey(
    name="ssl.truststore.location",
    type=str,
    default="",
    doc="PEM file: the authorities whose clients' certificates are believed.",
)
SSL_CLIENT_AUTH: Final = ConfigKey(
    name="ssl.client.auth",
    type=str,
    default="none",
    one_of=("none", "requested", "required"),
    doc="Whether clients of the listeners SSL and SASL_SSL show a certificate.",
)
SSL_PRINCIPAL_MAPPING_RULES: Final = ConfigKey(
    name="ssl.principal.mapping.rules",
    type=str,
    default="DEFAULT",
    doc="From a certificate's distinguished name to the user's: RULE:pattern/replacement/[LU],…,"
    "DEFAULT; the first that fits. DEFAULT: the name as it is.",
)
SASL_ENABLED_MECHANISMS: Final = ConfigKey(
    name="sasl.enabled.mechanisms",
    type=str,
    default="SCRAM-SHA-256,SCRAM-SHA-512",
    is_list=True,
    doc="Of PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. PLAIN shows the broker the password: over "
    "SASL_SSL only.",
)
SASL_SERVER_MAX_RECEIVE_SIZE: Final = ConfigKey(
    name="sasl.server.max.receive.size",
    type=int,
    default=64 << 10,
    at_least=1024,
    at_most=2**31 - 1,
    doc="Largest frame taken from a client that has not authenticated; a larger one closes its "
    "connection.",
)
CONNECTIONS_MAX_REAUTH_MS: Final = ConfigKey(
    name="connections.max.reauth.ms",
    type=int,
    default=0,
    at_least=0,
    doc="How long a client goes on without authenticating again (KIP-368); 0: for ever.",
)
FAILED_AUTHENTICATION_DELAY_MS: Final = ConfigKey(
    name="connection.failed.authentication.delay.ms",
    type=int,
    default=100,
    at_least=0,
    at_most=10_000,
    doc="How long after its request a client that failed to authenticate is told so.",
)
