"""Run seeds of the simulator, replay one, or hunt with one of the product's guards taken out.

python -m tests.sim --seeds 1-2000 --jobs 2
python -m tests.sim --seeds 63 --trace
python -m tests.sim --seeds 1-200 --without p4-trim
python -m tests.sim --measure p1-suffix p4-trim
"""

import sys

from tests.sim.command_line import main
from tests.sim.simulator import QUORUM

if __name__ == "__main__":
    sys.exit(main(QUORUM, __doc__))
