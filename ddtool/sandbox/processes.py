"""Naming one process for good, and ending exactly that one."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process by pid and start time (clock ticks since boot): a successor with its pid is another one."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has `pid` now; None when there is none, or only a zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]))

    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end, `timeout` seconds at most. True when it has ended."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            return not self.alive() or _readable(fd, timeout)
        finally:
            os.close(fd)

    def kill(self, timeout: float = 10.0) -> bool:
        """SIGKILL it and wait for its end. True when it has ended."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            if not self.alive():  # checked with the pidfd open: from here on it names this process only
                return True
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            return _readable(fd, timeout)
        finally:
            os.close(fd)


def _readable(fd: int, timeout: float | None) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if timeout is None else timeout * 1000))
