"""What can go wrong with a sandbox host, as functions on it. `clear` undoes all of them."""

from __future__ import annotations

from collections import defaultdict

from ddtool.sandbox import Sandbox, control, exec_inside, up

_mounted: dict[str, list[str]] = defaultdict(list)  # by sandbox: what fill and read_only put there


def stall(host: Sandbox) -> None:
    """Nothing flows and nothing closes: a partition, as open connections see it."""
    control.ask(host, "stall", True)


def cut(host: Sandbox) -> None:
    """Reset every open connection, now. New ones work."""
    control.ask(host, "cut")


def cut_after(host: Sandbox, size: int) -> None:
    """Reset every open connection after `size` more bytes, counted over both ways of all of them. Once."""
    control.ask(host, "cut-after", size)


def cuts(host: Sandbox) -> int:
    """How often cut_after has struck since the last clear."""
    return int(control.ask(host, "cuts")["cuts"])


def delay(host: Sandbox, seconds: float) -> None:
    """Everything arrives so much later, each way."""
    control.ask(host, "delay", seconds)


def rate(host: Sandbox, bytes_per_second: float) -> None:
    """Each way of each connection is that slow."""
    control.ask(host, "rate", bytes_per_second)


def refuse(host: Sandbox) -> None:
    """Open connections are reset, new ones refused."""
    control.ask(host, "refuse", True)


def clear(host: Sandbox) -> None:
    """A healthy network, power on, and no mounts of fill and read_only."""
    control.ask(host, "clear")
    power_on(host)
    for path in reversed(_mounted[host.name].copy()):
        if exec_inside(host, ["mountpoint", "-q", path]).returncode == 0:  # not after a power cycle
            unmount(host, path)
    _mounted.pop(host.name)


def power_off(host: Sandbox) -> None:
    """The plug is pulled. What was written stays, as if every write had been synced."""
    control.ask(host, "power-off")


def power_on(host: Sandbox) -> Sandbox:
    """Boot from the same disk and wait for ssh. Returns the host as it is now."""
    layers = host.lower[1:]
    return up(host.name, layers=layers)


def power_reset(host: Sandbox) -> Sandbox:
    power_off(host)
    return power_on(host)


def fill(host: Sandbox, path: str, size: str) -> None:
    """A disk of its own, empty and of `size` ("1m"), at folder `path`: ENOSPC soon."""
    _inside(host, "mkdir", "-p", path)
    _inside(host, "mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "small-disk", path)
    _mounted[host.name].append(path)


def read_only(host: Sandbox, path: str) -> None:
    """Writing below folder `path` fails with EROFS."""
    _inside(host, "mount", "--bind", path, path)
    _inside(host, "mount", "-o", "remount,bind,ro", path)
    _mounted[host.name].append(path)


def stuff(host: Sandbox, folder: str, leave: int = 0) -> None:
    """Fill the file system of a folder up, but for `leave` KiB."""
    script = f"""
import os
room = os.open({folder + "/room"!r}, os.O_WRONLY | os.O_CREAT)
os.posix_fallocate(room, 0, {leave} * 1024 or 1)
fd = os.open({folder + "/filler"!r}, os.O_WRONLY | os.O_CREAT)
block = 1 << 20
while block >= 4096:
    try:
        os.write(fd, bytes(block))
    except OSError:
        block //= 2
os.unlink({folder + "/room"!r})
"""
    _inside(host, "python3", "-c", script)


def unstuff(host: Sandbox, folder: str) -> None:
    """Undo stuff."""
    _inside(host, "rm", "-f", f"{folder}/filler", f"{folder}/room")


def unmount(host: Sandbox, path: str) -> None:
    """Undo fill or read_only. Lazily: the agent of a command that just ended may still be leaving the folder."""
    _inside(host, "umount", "--lazy", path)
    _mounted[host.name].remove(path)


def _inside(host: Sandbox, *argv: str) -> None:
    result = exec_inside(host, argv)
    assert result.returncode == 0, (argv, result.stderr)
