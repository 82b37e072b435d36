"""The journal of one run of the service as text: whole, line by line as it comes, and the phases of a start in it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from typing import Callable, ContextManager, Iterator

COMMAND_S = 10.0

Emit = Callable[..., None]

# Lines of a SGLang start that mark a phase, in the order in which they come.
PHASES = (
    (re.compile(r"server_args="), "starting"),
    (re.compile(r"Init torch distributed begin"), "joining ranks"),
    (re.compile(r"Load weight begin"), "loading weights"),
    (re.compile(r"Loading safetensors checkpoint shards:\s+(\d+)%"), "loading weights"),
    (re.compile(r"Load weight end"), "weights loaded"),
    (re.compile(r"KV Cache is allocated"), "KV pool allocated"),
    (re.compile(r"Capture (?:draft )?cuda graph begin"), "capturing graphs"),
    (re.compile(r"Capture (?:draft )?cuda graph end"), "graphs captured"),
    (re.compile(r"The server is fired up and ready to roll"), "ready"),
)


def text(invocation: str, lines: int) -> str:
    done = subprocess.run(
        ["journalctl", "-o", "cat", "--all", "-n", str(lines), f"_SYSTEMD_INVOCATION_ID={invocation}"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=COMMAND_S,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def says(invocation: str, words: str) -> bool:
    """Whether any line of the run has these words. A journalctl that cannot search, or not in time, says no: nothing
    that was measured is lost for it."""
    command = ["journalctl", "--quiet", "-o", "cat", "-n", "1", "--case-sensitive=true"]
    command += [f"--grep={re.escape(words)}", f"_SYSTEMD_INVOCATION_ID={invocation}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=COMMAND_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return False
    return bool(done.stdout.strip())


@contextlib.contextmanager
def follow(invocation: str, on_line: Callable[[str], None]) -> Iterator[None]:
    """While inside, `on_line` gets every line of this run's journal, from its beginning, in a thread."""
    command = ["journalctl", "-f", "-o", "cat", "--all", "-n", "all", f"_SYSTEMD_INVOCATION_ID={invocation}"]
    journal = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
    )

    def watch() -> None:
        assert journal.stdout
        for line in journal.stdout:
            on_line(line)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        journal.terminate()
        journal.wait()
        watcher.join(2.0)


def phases(invocation: str, emit: Emit) -> ContextManager[None]:
    """While inside, report each phase of the start that the journal shows, once, and loading in percent."""
    return follow(invocation, reporter(emit))


def reporter(emit: Emit) -> Callable[[str], None]:
    seen = set()

    def report(line: str) -> None:
        for pattern, phase in PHASES:
            match = pattern.search(line)
            percent = int(match.group(1)) if match and match.groups() else None
            if match and (phase, percent) not in seen:
                seen.add((phase, percent))
                emit("phase", phase=phase, percent=percent)

    return report
