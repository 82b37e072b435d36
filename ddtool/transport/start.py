"""Why the agent did not start, read from what the host's shell and sudo said."""

from __future__ import annotations

import re
import shlex

from ddtool.errors import ConnectTimeout, DdtoolError, PreflightError, PythonMissing, SudoNeedsPassword
from ddtool.transport.text import last_lines

# sudo's and the shells' own words, in English; in another language only their "sudo:" is the same.
_WANTS_PASSWORD = re.compile(
    r"sudo: (a password is required|a terminal is required to read|no tty present|interactive authentication)"
)
_NOT_A_SUDOER = re.compile(
    r"is not in the sudoers file|is not allowed to (execute|run)|may not run sudo|not permitted to use sudo"
)
_WANTS_TTY = re.compile(r"sudo: sorry, you must have a tty to run sudo")
_NO_SUDO = re.compile(r"sudo: (command )?not found|[Uu]nknown command:? .?sudo|command not found: sudo")
_NO_COMMANDS = re.compile(
    r"This account is currently not available|allows sftp connections only|nologin|"
    r"[Rr]emote command execution is not allowed|[Ss]hell access is disabled"
)
_CANNOT_RUN = re.compile(r"python3\S* .*Permission denied|unable to execute \S*python3\S* Permission denied")


def explain_start_failure(
    stderr: str, exit_status: int | None, user: str, host: str, stdout: str = ""
) -> DdtoolError:
    """The error for an agent that ended before its handshake line.

    `stderr` and `stdout` are what was written there instead, `exit_status` None when the host gave none, `user` the
    login, `host` the name that `ssh` takes.
    """
    said = last_lines(stdout + stderr, 8)
    ssh = f"ssh -t {shlex.quote(host)}"
    if "ddtool: no python3 on this host" in stderr:
        return PythonMissing(
            f"{host} has no python3",
            why="ddtool's agent is a Python program, version 3.8 or later",
            hint=f"{ssh} sudo apt-get install python3   # or with the host's own package manager",
        )
    if _CANNOT_RUN.search(stderr):
        return PreflightError(
            f"python3 on {host} cannot be executed",
            why=f"{said}\nits file system is mounted noexec, or the file may not be executed by {user}",
            hint=f"{ssh} 'findmnt -T $(command -v python3) -o TARGET,OPTIONS; ls -lL $(command -v python3)'",
        )
    if refused := _sudo_failure(stderr, said, user, host):
        return refused
    if _NO_COMMANDS.search(stdout + stderr):
        return PreflightError(
            f"{user} may run no commands on {host}",
            why=said,
            hint="log in as a user with a real shell, without ForceCommand or `command=` before the key",
        )
    ended = "without an exit status" if exit_status is None else f"with exit status {exit_status}"
    return PreflightError(
        f"the agent on {host} ended {ended} before it answered",
        why=said
        or "it wrote nothing: a start-up file of the shell may end it, or a forced command has its place",
        hint=f"see whether `ssh {shlex.quote(host)} python3 -V` works",
    )


def _sudo_failure(stderr: str, said: str, user: str, host: str) -> PreflightError | None:
    """What sudo had against it; None when sudo was not the reason. `said`: the last lines, to be shown."""
    ssh = f"ssh -t {shlex.quote(host)}"
    visudo = "sudo visudo -f /etc/sudoers.d/ddtool   # and put there:"
    grant = f"{visudo} {user} ALL=(root) NOPASSWD: /usr/bin/python3"
    if _WANTS_TTY.search(stderr):
        return SudoNeedsPassword(
            f"sudo on {host} wants a terminal",
            why="sudoers sets `requiretty` for this login",
            hint=f"{ssh} {visudo} Defaults:{user} !requiretty",
        )
    if _WANTS_PASSWORD.search(stderr):
        return SudoNeedsPassword(
            f"sudo on {host} wants a password for {user}",
            why="ddtool works as root, through `sudo -n`, and never asks for a password",
            hint=f"{ssh} {grant}",
        )
    if _NOT_A_SUDOER.search(stderr):
        return SudoNeedsPassword(
            f"{user} may not run python3 as root on {host}", why=said, hint=f"as root there: {grant}"
        )
    if _NO_SUDO.search(stderr):
        return PreflightError(
            f"{host} has no sudo, and {user} is not root",
            why="ddtool works as root",
            hint=f"log in as root (`User root` in the ssh configuration), or install sudo there: {ssh}",
        )
    if said.rpartition("\n")[2].startswith("sudo: "):
        return SudoNeedsPassword(f"sudo on {host} refuses {user}", why=said, hint=f"{ssh} {grant}")
    return None


def endless_noise(said: str, host: str) -> DdtoolError:
    """For a start-up file that prints without end in place of the agent's first line."""
    return PreflightError(
        f"{host}: the login shell prints without end before the agent's first line",
        why=last_lines(said, 3),
        hint=f"look at what `ssh {shlex.quote(host)} true` prints: .bashrc may print only where [ -t 1 ]",
    )


def no_start(said: str, seconds: float, host: str) -> DdtoolError:
    """For a login that worked and a command that neither ends nor starts the agent."""
    return ConnectTimeout(
        f"{host}: logged in, but the agent did not start within {seconds:.0f} s",
        why=last_lines(said, 8) or "nothing was written: a start-up file of the shell may wait for something",
        hint=f"see whether `ssh {shlex.quote(host)} true` returns",
    )
