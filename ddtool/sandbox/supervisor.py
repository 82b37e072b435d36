"""The one process behind a sandbox: `python -m ddtool.sandbox.supervisor OPTIONS-FILE READY-FD LOCK-FD`.

It holds the disk (mounted in its own mount namespace), PID 1, the relay and the control socket, and takes
all of it away when it is asked to, when its owner ends, or when it dies itself: PID 1 dies with it, and the
kernel then ends the rest. Single-threaded, since "dies with it" means the thread that made PID 1.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddtool.sandbox import cgroups, disk, sshfiles
from ddtool.sandbox.control import SOCKET
from ddtool.sandbox.machine import Machine
from ddtool.sandbox.processes import Process
from ddtool.sandbox.records import Options, Sandbox
from ddtool.sandbox.relay import ADDRESS, Relay

SSH_PORT = 22


class Supervisor:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._stop = asyncio.Event()
        self._machine = Machine(options, cgroups.parent(Path(options.state)), self._power_changed)
        self._relay = Relay(self._machine.socket_inside)

    async def run(self, ready: Callable[[], None]) -> None:
        """Boot, call `ready`, then serve until told to stop; nothing runs inside any more when it returns."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop.set)
        self._watch_owner()
        for port in (SSH_PORT, *self._options.publish):
            self._relay.publish(port)
        disk.mount(self._options)
        server = await asyncio.start_unix_server(self._serve, self._options.folder / SOCKET)
        try:
            self._machine.power_on()
            ready()
            await self._stop.wait()
        finally:
            server.close()
            await self._machine.power_off()
            self._relay.close()

    def _watch_owner(self) -> None:
        if self._options.owner is None:
            return
        try:
            owner = os.pidfd_open(self._options.owner)
        except ProcessLookupError:
            self._stop.set()
        else:
            asyncio.get_running_loop().add_reader(owner, self._stop.set)

    def _power_changed(self) -> None:
        if not self._machine.init:
            self._relay.cut()
        supervisor = Process.of(os.getpid())
        assert supervisor
        ports = dict(self._relay.ports)
        sandbox = Sandbox(
            name=self._options.name,
            address=ADDRESS,
            port=ports.pop(SSH_PORT),
            published=ports,
            lower=tuple(self._options.lower),
            oom_kill_reported=self._options.oom_kill_reported,
            supervisor=supervisor,
            init=self._machine.init,
            state=self._options.folder,
        )
        sshfiles.write_config(sandbox)
        sandbox.save()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request and its reply, a line of JSON each (see control.py)."""
        try:
            request = json.loads(await reader.readline())
            reply: dict[str, Any] = {"ok": await self._do(request["verb"], request["value"])}
        except (OSError, ValueError, TypeError, LookupError) as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        writer.write(json.dumps(reply).encode() + b"\n")
        writer.close()

    async def _do(self, verb: str, value: Any) -> dict[str, Any]:
        faults = self._relay.faults
        if self._stop.is_set():
            raise ValueError("it is going down")
        if verb == "down":
            self._stop.set()
        elif verb == "power-off":
            await self._machine.power_off()
        elif verb == "power-on":
            self._machine.power_on()
        elif verb == "delay":
            faults.delay = float(value)
        elif verb == "rate":
            faults.rate = float(value)
        elif verb == "cut-after":
            faults.cut_after = int(value)
        elif verb == "cut":
            self._relay.cut()
        elif verb == "stall":
            self._relay.stall(bool(value))
        elif verb == "refuse":
            self._relay.refuse(bool(value))
        elif verb == "clear":
            self._relay.clear()
        elif verb != "cuts":
            raise ValueError(f"unknown verb {verb}")
        return {"cuts": self._relay.faults.cuts}


async def _supervise(options: Options, ready: int, lock: int) -> None:
    def tell() -> None:
        os.write(ready, b"ready\n")  # to nobody when `up` was killed: the error ends this process too
        os.close(ready)
        os.close(lock)

    await Supervisor(options).run(tell)


def main() -> None:
    options_file, ready, lock = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for descriptor in (ready, lock):
        os.set_inheritable(descriptor, False)
    if os.fork():
        os._exit(0)  # whoever brought the sandbox up has waited for this; what serves on is nobody's child
    options = Options(**json.loads(Path(options_file).read_text()))
    _start_reaper(options.name)
    sshfiles.make_keys(options)
    os.chdir("/")  # it lives long, and is to keep no file system busy
    try:
        asyncio.run(_supervise(options, ready, lock))
    finally:
        disk.unmount(options)


def _start_reaper(name: str) -> None:
    """The process that outlives this one, however this one ends."""
    this = Process.of(os.getpid())
    assert this
    subprocess.Popen(
        [sys.executable, "-m", "ddtool.sandbox.reaper", name, str(this.pid), str(this.started)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


if __name__ == "__main__":
    main()
