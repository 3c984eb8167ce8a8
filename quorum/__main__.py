"""``python -m quorum voter.toml``: one voter, without the command line's trimmings."""

import sys
from pathlib import Path

from quorum.grpc_log import trace_handshakes

trace_handshakes()

from quorum.process import run  # noqa: E402 - grpc looks at its environment when it is loaded

if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), {}))
