"""Closing the connections of a user never blocks: not even those that are just being made."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from quorate.common.tls.certificate_authority import CertificateAuthority
from tests.support.closing_channels import close_channels
from tests.support.own_interpreter import run_in_own_interpreter

pytestmark = pytest.mark.integration

COUNT: Final = 10_000
"""Without the lasting channel, one in about 4,000 blocked."""

SERVER: Final = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc

with open(sys.argv[1], "rb") as file:
    pem = file.read()
server = grpc.server(ThreadPoolExecutor(2))
port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(pem, pem)]))
server.start()
print(port, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    authority = CertificateAuthority.open(tmp_path)
    authority.issue("server", ["localhost"], hosts=["127.0.0.1"])
    return authority


@pytest.fixture
def server(authority: CertificateAuthority) -> Iterator[str]:
    """Runs a TLS server in a process of its own, and gives its address."""
    certificate = str(authority.folder / "server.pem")
    command = [sys.executable, "-c", SERVER, certificate]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield f"127.0.0.1:{int(process.stdout.readline())}"
        process.terminate()


@pytest.mark.slow
def test_closing_the_last_connection_of_a_user_never_blocks(
    authority: CertificateAuthority, server: str
) -> None:
    run_in_own_interpreter(close_channels, server, str(authority.truststore), 1, COUNT)
