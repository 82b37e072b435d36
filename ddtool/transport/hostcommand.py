"""KnownHostsCommand: a program of the user's that prints lines of known_hosts. Run as ssh runs it, without a shell."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddtool.errors import ConnectTimeout, HostError
from ddtool.transport import knownhosts
from ddtool.transport.knownhosts import Entry
from ddtool.transport.sshconfig import KnownHostsCommand, SshConfig
from ddtool.transport.text import last_lines

PLACE = "KnownHostsCommand"  # what its lines have in place of a file's name
BEFORE_THE_KEY = {"I": "ORDER", "f": "NONE", "t": "NONE", "K": "NONE"}


def lines(config: SshConfig, name: str, tokens: Mapping[str, str], timeout_s: float) -> list[Entry]:
    """What the command says of the host `name`; none where it cannot be run, as in ssh. `tokens`: H, I, f, t and K.

    Lines for the bare name of a host on another port do not count, as in ssh. Raises HostError where ssh ends as
    well: the command fails, or an argument has a variable that is not set. Raises ConnectTimeout.
    """
    command = config.known_hosts_command
    if not command or obstacle(command):
        return []
    program, *words = shlex.split(command.text)
    argv = [program, *(_expanded(config, command, word, tokens) for word in words)]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            env=dict(command.tokens.environ),
            check=False,
        )
    except OSError as error:
        raise _failed(config, argv, f"it cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ConnectTimeout(
            f"{config.name}: KnownHostsCommand did not end within {timeout_s:.1f} s",
            why="ssh waits for it, too",
            hint=shlex.join(argv),
        ) from error
    if done.returncode:
        said = last_lines(done.stderr.decode(errors="replace"), 3)
        raise _failed(config, argv, said or f"exit status {done.returncode}")
    found = knownhosts.parse(done.stdout.decode(errors="replace"), PLACE)
    return [entry for entry in found if entry.covers(name)]


def obstacle(command: KnownHostsCommand) -> str | None:
    """Why it is not run at all. ssh says so on the side and goes on with the files."""
    try:
        words = shlex.split(command.text)
    except ValueError as error:
        return str(error)
    if not words[0].startswith("/"):
        return "its path is not absolute"
    return None if Path(words[0]).exists() else f"there is no {words[0]}"


def _expanded(config: SshConfig, command: KnownHostsCommand, word: str, more: Mapping[str, str]) -> str:
    environ = command.tokens.environ

    def variable(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise _failed(config, [command.text], f"the variable {match[1]} is not set")
        return environ[match[1]].replace("%", "%%")

    return command.tokens.expand(re.sub(r"\$\{(\w+)\}", variable, word), more)


def _failed(config: SshConfig, argv: Sequence[str], why: str) -> HostError:
    return HostError(
        f"{config.name}: KnownHostsCommand failed",
        why=why,
        hint=f"{shlex.join(argv)}   # by hand: must end with status 0 and print lines of known_hosts",
    )
