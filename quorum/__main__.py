"""``python -m quorum voter.toml`` runs one voter without the command line tool."""

import sys
from pathlib import Path

from quorate.common.grpc_support.grpc_log import trace_handshakes

trace_handshakes()

from quorate.quorum.process import run  # noqa: E402 - grpc looks at its environment when it is loaded

if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), {}))
