"""Throw-away hosts on this machine, for demos and tests: real systemd, journald and sshd, up in a second.

    sandbox = up("demo")
    subprocess.run(["ssh", "-F", sandbox.ssh_config, "demo", "systemctl status"])
    down("demo")

A sandbox is a container made with the kernel's own calls: no image store, no daemon. Linux with root.
No security boundary: root inside is root of this machine, only fenced against accidents.
"""

from ddtool.sandbox.console import exec_inside
from ddtool.sandbox.hosts import down, find, running, up
from ddtool.sandbox.records import Sandbox

__all__ = ["Sandbox", "down", "exec_inside", "find", "running", "up"]
