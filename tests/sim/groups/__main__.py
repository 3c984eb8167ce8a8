"""Run seeds of the cluster's simulator with a consumer group, or hunt with one guard taken out.

python -m tests.sim.groups --seeds 1-200 --jobs 2
python -m tests.sim.groups --seeds 63 --trace
python -m tests.sim.groups --seeds 1-200 --without member-epochs
"""

import sys

from tests.sim.command_line import main
from tests.sim.groups.simulator import GROUPS

if __name__ == "__main__":
    sys.exit(main(GROUPS, __doc__))
