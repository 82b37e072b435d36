"""ddtool as its user runs it, with the agent that can be told to die or stand, and these diagnostics:

`python as_operator.py PATCHES-FOLDER COMMAND…`
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from support import doctored

    from ddtool.cli import main
    from ddtool.diagnostics import definition
    from ddtool.transport import agent

    patches = Path(sys.argv.pop(1))
    definition.data_folder = lambda name: patches
    agent.agent_zipapp = doctored.agent
    main()
