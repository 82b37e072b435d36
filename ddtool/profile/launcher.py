"""From a service's command, wrapped as people wrap it, to the Python and the flags of SGLang. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ddtool.profile.shell_text import UNRESOLVED, NotPlain, Reader, assignment

SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
CONTAINERS = ("docker", "podman", "nerdctl", "apptainer", "singularity", "enroot", "kubectl", "srun")
TERMINALS = ("tmux", "screen")
# Program → its options that take a value of their own, and how many words stand before the command.
WRAPPERS: dict[str, tuple[tuple[str, ...], int]] = {
    "nohup": ((), 0),
    "setsid": ((), 0),
    "time": ((), 0),
    "unbuffer": ((), 0),
    "stdbuf": (("-i", "-o", "-e"), 0),
    "nice": (("-n",), 0),
    "ionice": (("-c", "-n"), 0),
    "chrt": (("-T", "-P", "-D"), 1),
    "taskset": ((), 1),
    "numactl": (("-N", "-m", "-C", "-p", "-i"), 0),
    "timeout": (("-s", "-k"), 1),
    "sudo": (("-u", "-g"), 0),
    "runuser": (("-u", "-g"), 0),
    "systemd-inhibit": ((), 0),
}
RUNNERS = ("uv", "conda", "mamba", "micromamba", "poetry", "pipenv", "rye", "hatch")
RUNNERS_VALUED = (
    *("-n", "--name", "-p", "--prefix", "--python", "--project"),
    *("--directory", "--with", "--env-file", "--cwd"),
)
HARMLESS = ("set", "shopt", "trap", "echo", "printf", "date", "true", ":", "umask", "wait")


class CannotTell(Exception):
    """What the service runs cannot be read from its texts; says why."""


@dataclass
class Launch:
    """`python` as written, perhaps without a path; `venv` when the wrapper activated one; `env` that it exported.

    `dropped`: (what, why) of everything around the server that a profile has no place for.
    """

    flags: list[str]
    python: str
    venv: str | None
    cwd: str | None
    env: dict[str, str]
    dropped: list[tuple[str, str]]


@dataclass
class Unwrapper:
    """`read` gives the text of a script on the host, or None."""

    environment: dict[str, str]
    cwd: str | None
    read: Callable[[str], str | None]
    exported: dict[str, str] = field(default_factory=dict)
    venv: str | None = None
    dropped: list[tuple[str, str]] = field(default_factory=list)
    depth: int = 0

    def launch(self, argv: list[str]) -> Launch:
        """Raises CannotTell."""
        found = self.command(argv)
        if found is None:
            raise CannotTell(f"it runs {argv[0] if argv else 'nothing'}, which is not known to start SGLang")
        python, flags = found
        return Launch(flags, python, self.venv, self.cwd, self.exported, self.dropped)

    def command(self, argv: list[str]) -> tuple[str, list[str]] | None:
        """(python, flags) when these words start SGLang in the end; None when they do something else."""
        while argv and (pair := assignment(argv[0])):
            self.export(*pair)
            argv = argv[1:]
        if not argv:
            return None
        name, rest = argv[0].rpartition("/")[2], argv[1:]
        if name in CONTAINERS:
            raise CannotTell(f"it runs in a container or a cluster ({name}), which ddtool does not deploy to")
        if name in TERMINALS:
            raise CannotTell(f"it runs in {name}, away from systemd")
        if name == "exec":
            return self.command(_after_options(rest, ("-a",))[1])
        if name == "env":
            return self.env(rest)
        if name in SHELLS:
            return self.shell(rest)
        if name in WRAPPERS:
            return self.wrapper(name, rest)
        if re.fullmatch(r"python[0-9.]*|pypy3?", name):
            return self.python(argv[0], rest)
        if name == "sglang" and rest[:1] == ["serve"]:
            return _python_beside(argv[0]), rest[1:]
        if name in RUNNERS and rest[:1] == ["run"]:
            return self.runner(name, rest[1:])
        text = self.read(argv[0])
        return self.script(text) if text is not None else None

    def export(self, name: str, value: str) -> None:
        self.environment[name] = self.exported[name] = value

    def drop(self, what: str, why: str) -> None:
        self.dropped.append((what.replace(UNRESOLVED, "$(…)"), why))

    def env(self, words: list[str]) -> tuple[str, list[str]] | None:
        while words and words[0].startswith("-"):
            if words[0] in ("-S", "--split-string"):
                words = words[1].split() + words[2:]
            elif words[0] in ("-u", "--unset"):
                self.environment.pop(words[1], None)
                self.drop(f"env -u {words[1]}", "a profile sets variables and unsets none")
                words = words[2:]
            else:
                self.drop(f"env {words[0]}", "ddtool's unit has its own small environment")
                words = words[1:]
        return self.command(words)

    def wrapper(self, name: str, words: list[str]) -> tuple[str, list[str]] | None:
        valued, positional = WRAPPERS[name]
        options, rest = _after_options(words, valued)
        options, rest = [*options, *rest[:positional]], rest[positional:]
        self.drop(" ".join([name, *options]), WHY_WRAPPER.get(name, "ddtool starts the server itself"))
        return self.command(rest)

    def runner(self, name: str, words: list[str]) -> tuple[str, list[str]] | None:
        options, rest = _after_options(words, RUNNERS_VALUED)
        for option, value in zip(options, [*options[1:], ""], strict=True):
            if option in ("-p", "--prefix") and name != "uv":
                self.venv = value
            elif option in ("--project", "--directory", "--cwd"):
                self.venv = self.venv or f"{value}/.venv"
        if self.venv is None and name == "uv" and self.cwd:
            self.venv = f"{self.cwd}/.venv"
        self.drop(" ".join([name, "run", *options]), "ddtool starts the environment's own Python")
        return self.command(rest)

    def python(self, program: str, words: list[str]) -> tuple[str, list[str]] | None:
        options, rest = _after_options(words, ("-X", "-W"), stop=("-m", "-c"))
        if options:
            self.drop(
                f"python {' '.join(options)}", "ddtool starts Python without options; see its own variables"
            )
        if rest[:2] == ["-m", "sglang.launch_server"]:
            return program, rest[2:]
        if rest[:1] == ["-m"] and rest[1:2] in (["sglang"], ["sglang.cli.main"]) and rest[2:3] == ["serve"]:
            return program, rest[3:]
        if rest and re.search(r"(^|/)(sglang/)?launch_server\.py$", rest[0]):
            return program, rest[1:]
        if rest and re.search(r"/sglang$", rest[0]) and rest[1:2] == ["serve"]:
            return program, rest[2:]
        if rest[:1] == ["-m"] and len(rest) > 1 and rest[1].startswith("sglang"):
            raise CannotTell(f"it starts {rest[1]}, which is not the server (sglang.launch_server)")
        return None

    def shell(self, words: list[str]) -> tuple[str, list[str]] | None:
        while words and words[0].startswith(("-", "+")):
            option, words = words[0], words[1:]
            if option == "--":
                break
            if (not option.startswith("--") and "l" in option) or option == "--login":
                self.drop(
                    "a login shell", "what /etc/profile and ~/.profile set is not read: put it into env"
                )
            if not option.startswith("--") and "c" in option:
                return self.script(words[0]) if words else None
            if option in ("-o", "-O", "+o"):
                words = words[1:]
        text = self.read(words[0]) if words else None
        return self.script(text) if text is not None else None

    def script(self, text: str) -> tuple[str, list[str]] | None:
        self.depth += 1
        if self.depth > 5:
            raise CannotTell("its scripts call each other")
        reader = Reader(text, self.environment)
        found = None
        try:
            while (command := reader.next()) is not None:
                if found is not None:
                    self.drop(" ".join(command.words), "it would run after the server")
                    continue
                found = self.step(command.words)
                if found is not None:
                    for redirect in command.redirects:
                        self.drop(redirect, "ddtool's unit logs to the journal: ddtool logs")
                    if command.end in ("|", "|&"):
                        self.drop(
                            "a pipe behind the server", "ddtool's unit logs to the journal: ddtool logs"
                        )
                        reader.next()
        except NotPlain as error:
            if found is None:
                raise CannotTell(f"its script has more than plain commands: {error}") from error
        return found

    def step(self, words: list[str]) -> tuple[str, list[str]] | None:
        """One command of a script, until the one that starts the server."""
        if words and all(assignment(word) for word in words):
            for word in words:
                name, value = assignment(word) or ("", "")
                self.environment[name] = value  # for this script; only an export reaches the server
                if name in self.exported:
                    self.exported[name] = value
            return None
        name, rest = (words[0], words[1:]) if words else ("", [])
        if name in ("export", "declare", "typeset"):
            for word in rest:
                pair = assignment(word) or (
                    (word, self.environment[word]) if word in self.environment else None
                )
                if pair:
                    self.export(*pair)
        elif name == "cd" and rest:
            self.cwd = rest[0] if rest[0].startswith("/") else f"{self.cwd or ''}/{rest[0]}"
        elif name in ("source", ".") and rest:
            return self.source(rest[0])
        elif name == "unset":
            for word in rest:
                self.environment.pop(word, None)
                self.exported.pop(word, None)
        elif name == "ulimit":
            self.drop(" ".join(words), "ddtool's unit sets LimitNOFILE and LimitMEMLOCK as high as they go")
        elif name not in HARMLESS:
            found = self.command(words)
            if found is None and words:
                self.drop(
                    " ".join(words),
                    "a profile has no commands before the server; a drop-in's ExecStartPre= has",
                )
            return found
        return None

    def source(self, path: str) -> tuple[str, list[str]] | None:
        activated = re.fullmatch(r"(.+)/bin/activate", path)
        if activated:
            folder = activated.group(1)
            self.venv = folder if folder.startswith("/") else f"{self.cwd or ''}/{folder}"
            return None
        text = self.read(path)
        if text is None:
            self.drop(f"source {path}", "the file could not be read")
            return None
        return self.script(text)


WHY_WRAPPER = {
    "numactl": "a profile binds no memory; a drop-in's NUMAPolicy= and CPUAffinity= do",
    "taskset": "a profile binds no processors; a drop-in's CPUAffinity= does",
    "nice": "a drop-in's Nice= does it",
    "ionice": "a drop-in's IOSchedulingClass= does it",
    "chrt": "a drop-in's CPUSchedulingPolicy= does it",
    "sudo": "ddtool's unit runs as root",
    "runuser": "ddtool's unit runs as root",
    "timeout": "a service runs until it is stopped",
    "stdbuf": "the journal gets lines as they are written",
}


def _python_beside(program: str) -> str:
    """The Python of a console script: the one in its folder."""
    folder = program.rpartition("/")[0]
    return f"{folder}/python" if folder else "python"


def _after_options(
    words: list[str], valued: tuple[str, ...], stop: tuple[str, ...] = ()
) -> tuple[list[str], list[str]]:
    """Leading options with their values, and the rest."""
    options: list[str] = []
    while words and words[0].startswith("-") and words[0] not in stop:
        if words[0] == "--":
            return options, words[1:]
        take = 2 if words[0] in valued else 1
        options, words = [*options, *words[:take]], words[take:]
    return options, words


def launch(
    argv: list[str], environment: Mapping[str, str], cwd: str | None, read: Callable[[str], str | None]
) -> Launch:
    """Raises CannotTell."""
    return Unwrapper(dict(environment), cwd, read).launch(argv)
