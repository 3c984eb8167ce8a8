"""The certificates of a local cluster, in DIR/certs. They are made with the cluster."""

from pathlib import Path
from typing import Final

from quorate.cluster.layout import CERTS_FOLDER, Node, load_nodes
from quorate.common.files.private_files import private_files
from quorate.common.tls.certificate_authority import CA_DAYS, TRUSTSTORE_FILE, CertificateAuthority
from quorate.common.tls.identity import Role, Security
from quorate.common.tls.keystore import load_security
from quorate.common.tls.tls_config import PLAINTEXT, VOTER_SECURITY

ADMIN: Final = "admin"


def make_certificates(folder: Path, nodes: list[Node]) -> None:
    """Make an authority, a certificate for each node, and one for the commands; valid for years.

    Raises:
        SecurityError: the folder cannot be written.
    """
    with private_files():
        authority = CertificateAuthority.open(folder / CERTS_FOLDER)
    for node in nodes:
        role = Role.VOTER if node.kind == "quorum" else Role.BROKER
        authority.issue_node(role, node.id, days=CA_DAYS)
    authority.issue_admin(ADMIN, days=CA_DAYS)


def admin_security(folder: Path) -> Security | None:
    """Return the certificates of commands for the quorum in ``folder``, or None for plain text.

    Raises:
        ConfigError: a configuration file or a certificate cannot be used.
    """
    for node in load_nodes(folder.resolve()):
        if node.kind == "quorum" and node.config.get(VOTER_SECURITY.protocol.name) == PLAINTEXT:
            return None
    keystore = folder / CERTS_FOLDER / f"{ADMIN}.pem"
    truststore = folder / CERTS_FOLDER / TRUSTSTORE_FILE
    return load_security("--data", keystore, "--data", truststore, Role.ADMIN)
