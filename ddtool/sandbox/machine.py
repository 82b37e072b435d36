"""One sandbox's mains: PID 1 started, watched, started again when it asks for a reboot, and killed."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from ddtool.sandbox import boot, cgroups, kernel
from ddtool.sandbox.processes import Process
from ddtool.sandbox.records import Options

_NAMESPACES = kernel.NEWNS | kernel.NEWPID | kernel.NEWUTS | kernel.NEWIPC | kernel.NEWNET


class Machine:
    """PID 1 and its network namespace. `changed` is called whenever the power went on or off.

    To be used from one thread, and that the supervisor's only one: PID 1 dies with the thread that made it.
    """

    def __init__(self, options: Options, group: str, changed: Callable[[], None]) -> None:
        self.init: Process | None = None
        self._options = options
        self._group = group
        self._changed = changed
        self._off = asyncio.Event()
        self._may_reboot = True
        self._outer_network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._network = self._pidfd = self._terminal = self._console = -1

    def power_on(self) -> None:
        """Boot; returns when PID 1 runs (long before ssh answers). Nothing to do when it is on."""
        if self.init:
            return
        groups = cgroups.create(self._group, self._options.name, self._options.memory)
        # The console's own end stays open here: a terminal that nobody has open hangs up, and then every
        # status line costs systemd a second of retries.
        self._terminal, self._console = pty.openpty()
        go_read, go_write = os.pipe()
        pid = kernel.clone(_NAMESPACES)
        if pid == 0:
            os.close(go_write)
            self._child(go_read)
        os.close(go_read)
        self.init = Process.of(pid)
        self._network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._watch(pid)  # before anything that can fail, so that power_off works from here on
        cgroups.move(groups, pid)
        os.write(go_write, b"g")
        os.close(go_write)
        self._changed()

    async def power_off(self) -> None:
        """Pull the plug: every process inside is killed at once. The disk keeps what was written."""
        if self.init:
            self._off.clear()
            self._may_reboot = False
            os.kill(self.init.pid, signal.SIGKILL)
            await self._off.wait()
            self._may_reboot = True

    def socket_inside(self) -> socket.socket:
        """A new TCP socket in the sandbox's network. Raises ConnectionRefusedError while it is off."""
        if not self.init:
            raise ConnectionRefusedError("the sandbox is off")
        kernel.enter_namespace(self._network, kernel.NEWNET)
        try:
            return socket.socket()
        finally:
            kernel.enter_namespace(self._outer_network, kernel.NEWNET)

    def _child(self, go: int) -> None:
        try:
            kernel.die_with_parent()
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                with suppress(OSError):  # two of them belong to libc
                    signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            if os.read(go, 1) == b"g":  # the parent has put this process into its cgroups
                boot.become_init(self._options, self._console)
        except BaseException as error:  # noqa: BLE001 - it must not run on as a second supervisor
            os.write(self._console, f"boot failed: {error!r}\n".encode())
        finally:
            os._exit(111)

    def _watch(self, pid: int) -> None:
        loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(pid)
        loop.add_reader(self._pidfd, self._ended)
        os.set_blocking(self._terminal, False)
        loop.add_reader(self._terminal, self._log_console)

    def _log_console(self) -> None:
        with suppress(BlockingIOError):
            text = os.read(self._terminal, 65536).replace(b"\r\n", b"\n")
            with suppress(FileNotFoundError), (self._options.folder / "console.log").open("ab") as log:
                log.write(text)  # unless whoever brings it up gave up and took the folder away

    def _ended(self) -> None:
        assert self.init
        self._log_console()
        loop = asyncio.get_running_loop()
        for watched in (self._pidfd, self._terminal):
            loop.remove_reader(watched)
        for descriptor in (self._pidfd, self._network, self._terminal, self._console):
            os.close(descriptor)
        _, status = os.waitpid(self.init.pid, 0)
        self.init = None
        cgroups.remove(self._group, self._options.name)
        # how the kernel reports reboot(2) of a PID namespace: SIGHUP for restart, SIGINT for power off
        reboot = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGHUP and self._may_reboot
        sys.stderr.write(f"PID 1 ended with wait status {status}: {'reboot' if reboot else 'off'}\n")
        self._off.set()
        self._changed()
        if reboot:
            self.power_on()
