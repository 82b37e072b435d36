"""The small process beside each supervisor: `python -m ddtool.sandbox.reaper NAME PID STARTED`.

It waits for the supervisor's end and cleans up behind it, should it have been killed. When both are killed, the next
`up` or `down` sweeps.
"""

from __future__ import annotations

import os
import sys

from ddtool.sandbox import cleanup
from ddtool.sandbox.processes import Process
from ddtool.sandbox.records import load, name_lock


def main() -> None:
    name, pid, started = sys.argv[1:]
    os.chdir("/")  # it lives long, and is to keep no file system busy
    supervisor = Process(int(pid), int(started))
    supervisor.wait()
    with name_lock(name):
        sandbox = load(name)
        if not sandbox or sandbox.supervisor == supervisor:  # else it was brought up anew meanwhile
            cleanup.forget(name)


if __name__ == "__main__":
    main()
