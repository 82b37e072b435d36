"""A hand-made unit as a profile: what maps onto its keys, what ddtool's unit covers, and what is left behind. Pure.

started = what_starts(found)                 # `found`: the host's answer to unit.read
made = to_profile(found, started, engine)    # `engine`: its answer to unit.engine
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from ddtool.errors import ProfileError
from ddtool.profile import flag_words, launcher, release_flags, unit_settings, unit_text
from ddtool.profile.flag_sections import Sections
from ddtool.profile.launcher import CannotTell, Launch
from ddtool.profile.shell_text import UNRESOLVED

Found = Mapping[str, Any]
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Row:
    """`what` as it stands in the unit, `why` it went where it did, and `where` it stands."""

    what: str
    why: str
    where: str


@dataclass(frozen=True)
class Started:
    """`source`: `unit`, or `process` when only the running process could tell."""

    launch: Launch
    settings: list[unit_text.Setting]
    environment: dict[str, str]
    origins: dict[str, str]  # variable → where it stands
    source: str


@dataclass
class FromUnit:
    """`profile` as YAML data. `carried`: key ← where from. Everything of the unit is in one of the three lists."""

    unit: str
    profile: dict[str, Any]
    carried: list[Row] = field(default_factory=list)
    covered: list[Row] = field(default_factory=list)
    left: list[Row] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def text(self, host: str) -> str:
        """The profile as a file, with what it does not have as comments."""
        head = [f"# From the unit {self.unit} on {host}, by `ddtool profile from-unit`."]
        head += [
            f"# {name} has to be in your environment when you deploy; on the host it is in {where}"
            for name, where in sorted(self.secrets.items())
        ]
        head += ["# Not carried over:"] if self.left else []
        head += [f"#   {row.what}  ({row.where}): {row.why}" for row in self.left]
        data = yaml.safe_dump(self.profile, sort_keys=False, allow_unicode=True, width=110)
        return "".join(f"{_one_line(line)}\n" for line in head) + data


def what_starts(found: Found) -> Started:
    """How the unit starts SGLang, read from its texts; from the running process where the texts do not tell.

    Raises ProfileError when neither does.
    """
    known = unit_text.specifiers(found["unit"], {"H": found["hostname"]})
    settings = unit_text.settings(found["texts"])
    environment, origins = _environment(found, settings, known)
    cwd = _working_directory(found, settings, known)
    line = next((setting.value for setting in settings if setting.name == "ExecStart"), "")
    argv = unit_text.command(line, {"PATH": DEFAULT_PATH, **environment}, known)
    process = found.get("process")
    try:
        launch = launcher.launch(argv, environment, cwd, found["scripts"].get)
        source = "unit"
        if process and any(UNRESOLVED in word for word in launch.flags):
            raise CannotTell("some of its arguments are computed by a shell")
    except CannotTell as error:
        if not process:
            raise ProfileError(
                f"cannot tell what {found['unit']} starts: {error}",
                why=f"ExecStart={line}",
                hint="start it and run this again: then its process tells, unless it runs in a container",
            ) from None
        launch = launcher.launch(process["argv"], {}, process["cwd"], lambda path: None)
        launch.dropped.append((f"ExecStart={line}", f"{error}; read from the running process instead"))
        source = "process"
    return Started(launch, settings, environment, origins, source)


def paths_of(started: Started, found: Found) -> list[str]:
    """The checkpoints whose facts `to_profile` needs."""
    flags = all_flags(started, found, None)[0]
    names = ("model-path", "model", "speculative-draft-model-path", "speculative-draft-model")
    return [flags[name][0] for name in names if flags.get(name)]


def all_flags(
    started: Started, found: Found, known: release_flags.ReleaseFlags | None
) -> tuple[dict[str, list[str]], list[str], list[Row]]:
    """Flags of the command line over those of its `--config` file; stray words; what could not be read."""
    flags, strays = flag_words.parse(started.launch.flags, known)
    left = []
    for path in flags.pop("config", []):
        try:
            values = yaml.safe_load(found["configs"][path])
            flags = {**flag_words.from_config(values), **flags}
        except (KeyError, yaml.YAMLError, AttributeError):
            left.append(Row(f"--config {path}", "the file could not be read", "ExecStart"))
    return flags, strays, left


def to_profile(found: Found, started: Started, engine: Found) -> FromUnit:
    launch, venv = started.launch, engine["venv"]
    release = (venv.get("dists") or {}).get("sglang")
    known = release_flags.load(release) if release else None
    flags, strays, left = all_flags(started, found, known)
    made = FromUnit(found["unit"], {}, left=left)
    made.left += [Row(word, "it belongs to no flag", "ExecStart") for word in strays]
    made.left += [Row(what, why, "ExecStart") for what, why in launch.dropped]
    sections = Sections(flags, found, engine, launch.cwd)
    sections.read()
    made.profile = {
        "description": f"as {found['unit']} ran on {found['hostname']}",
        "service": {**_service(found, made), **sections.service},
        "engine": _engine(launch, venv, release, made),
        **sections.others,
    }
    _settings(started, made)
    env = _env(found, started, engine, made)
    if env:
        made.profile["env"] = env
    made.left += [Row(what, why, "ExecStart") for what, why in sections.left]
    made.carried += [Row(key, what, "ExecStart") for key, what in sections.carried]
    made.remarks += sections.remarks
    made.remarks += _differences(found, started, known)
    text = yaml.safe_dump(made.profile)
    made.secrets = {name: where for name, where in found["secrets"].items() if f"${{env:{name}}}" in text}
    return made


def _service(found: Found, made: FromUnit) -> dict[str, Any]:
    unit: str = found["unit"]
    name = unit.replace("@", "-").replace("\\", "-")
    if name != unit:
        made.left.append(
            Row(
                unit,
                f"ddtool's unit cannot be an instance of a template: it is called {name}, so there is nothing to "
                f"take over; stop and disable {unit} before you deploy",
                "its name",
            )
        )
    return {"unit": name}


def _engine(launch: Launch, venv: Found, release: str | None, made: FromUnit) -> dict[str, Any]:
    engine: dict[str, Any] = {"venv": venv["path"]}
    made.carried.append(Row("engine.venv", launch.python, "ExecStart"))
    if launch.python.startswith("/") and launch.python.rpartition("/")[0] != f"{venv['path']}/bin":
        engine["python"] = launch.python
    engine["provider"] = "builtin"
    if release:
        engine["release"] = release
        made.carried.append(Row("engine.release", "the installed SGLang", venv["path"]))
    else:
        made.remarks.append(
            f"engine.release: {venv['path']} holds no sglang that could be found; set engine.venv too"
        )
    return engine


def _environment(
    found: Found, settings: list[unit_text.Setting], known: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Variables that systemd sets, and where each stands: files after `Environment=`, as systemd has it."""
    environment: dict[str, str] = {}
    origins: dict[str, str] = {}
    for setting in settings:
        if setting.name == "Environment":
            for name, value in unit_text.assignments(setting.value, known).items():
                environment[name], origins[name] = value, setting.where
    for setting in settings:
        if setting.name == "EnvironmentFile":
            path = unit_text.resolved(setting.value.lstrip("-"), known)
            for name, value in unit_text.environment_file(found["environment_files"].get(path, "")).items():
                environment[name], origins[name] = value, path
    return environment, origins


def _working_directory(
    found: Found, settings: list[unit_text.Setting], known: Mapping[str, str]
) -> str | None:
    """Where it starts; `~` alone is the home of the unit's user."""
    folder = unit_text.resolved(_last(settings, "WorkingDirectory") or "", known).lstrip("-")
    if folder == "~":
        folder = found["homes"].get(_last(settings, "User")) or "/root"
    return folder or None


def _env(found: Found, started: Started, engine: Found, made: FromUnit) -> dict[str, str]:
    """The profile's env: the unit's, what its wrapper exported, and the home of its user, where caches are."""
    launch, user = started.launch, _last(started.settings, "User")
    values = {**started.environment, **launch.env}
    origins = {**dict.fromkeys(launch.env, "ExecStart"), **started.origins}
    if launch.venv:  # activated: its tools, such as ninja, were found by name
        values["PATH"] = f"{launch.venv}/bin:{values.get('PATH', DEFAULT_PATH)}"
        origins.setdefault("PATH", "ExecStart")
    if engine["shadow"] and launch.cwd:
        values["PYTHONPATH"] = ":".join(filter(None, [launch.cwd, values.get("PYTHONPATH", "")]))
        origins.setdefault("PYTHONPATH", "WorkingDirectory")
        made.remarks.append(
            f"SGLang was imported from {launch.cwd}, not from its environment: env.PYTHONPATH keeps that"
        )
    home = found["homes"].get(user) if user not in (None, "root", "0") else None
    if home and "HOME" not in values:
        values["HOME"], origins["HOME"] = home, f"User={user}"
    kept = {}
    for name, value in sorted(values.items()):
        where = origins.get(name, "ExecStart")
        why = _unfit(value)
        if why:
            made.left.append(Row(name, why, where))
        else:
            kept[name] = value
            made.carried.append(Row(f"env.{name}", f"{name}=", where))
    return kept


def _unfit(value: str) -> str | None:
    if not value:
        return "it is empty, which a profile cannot tell from unset"
    if UNRESOLVED in value:
        return "a shell computes its value"
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        return "it has a line break or control character"
    if "${" in value.replace("${env:", ""):
        return "a profile replaces only ${env:NAME}"
    return None


def _settings(started: Started, made: FromUnit) -> None:
    for setting in started.settings:
        what, where = f"{setting.name}={setting.value}", setting.where
        if setting.name == "TimeoutStopSec":
            stop_s = unit_settings.seconds(setting.value)
            if stop_s:
                made.profile["service"].setdefault("deadlines", {})["stop_s"] = stop_s
                made.carried.append(Row("service.deadlines.stop_s", what, where))
            else:
                made.left.append(Row(what, "not a time that a deadline can be", where))
        elif setting.name == "WorkingDirectory":
            made.covered.append(Row(what, "ddtool's service runs in its release's folder", where))
        else:
            fate = unit_settings.fate(setting)
            if fate is not None:
                (made.covered if fate[0] else made.left).append(Row(what, fate[1], where))


def _differences(found: Found, started: Started, known: release_flags.ReleaseFlags | None) -> list[str]:
    """Flags of the running process that are not those of the unit: somebody edited it since it started."""
    process = found.get("process")
    if not process or started.source == "process":
        return []
    try:
        runs = launcher.launch(process["argv"], {}, process["cwd"], lambda path: None).flags
    except CannotTell:
        return []
    now, then = flag_words.parse(started.launch.flags, known)[0], flag_words.parse(runs, known)[0]
    names = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
    if not names:
        return []
    listed = ", ".join(f"--{name}" for name in names)
    words = f"the running process was started with other values of {listed} than the unit has now"
    return [f"{words}; the profile has the unit's"]


def _last(settings: list[unit_text.Setting], name: str) -> str | None:
    return next((setting.value for setting in reversed(settings) if setting.name == name), None)


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
