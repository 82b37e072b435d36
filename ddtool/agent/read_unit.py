"""Requests about a unit that somebody made by hand: its texts, what it started, and the installation it uses.

Everything that is read leaves the host masked (see foreign.py). Nothing is written and nothing of it is run.
"""

from __future__ import annotations

import pwd
import re
import socket
from pathlib import Path
from typing import Any, Dict, List, Optional

from . import client, facts, served, unit
from .errors import AgentError
from .foreign import Masks
from .registry import Context, op

SIZE = 64 << 10  # a larger file is no script
_ENVIRONMENT_FILE = re.compile(r"^\s*EnvironmentFile=-?(\S+)", re.MULTILINE)
_CONFIG = re.compile(r"--config(?:=|\s+)[\"']?(/[^\s\"';]+)")
_PATH = re.compile(r"(?<![\w.:=/-])(/[^\s\"';&|]+)")
_SHEBANG = re.compile(rb"#!\s*\S*(?:/|env )(?:ba|da|z|k)?sh\b")
_USER = re.compile(r"^\s*User=(\S+)", re.MULTILINE)
_RESOLVED = ("attention_backend", "prefill_attention_backend", "decode_attention_backend", "version")


@op("unit.read")
def read(ctx: Context, unit_name: str) -> Dict[str, Any]:
    """`{unit, hostname, state, texts, environment_files, scripts, configs, process, server, homes, secrets}`.

    `texts`: path → text, in systemd's order. `process`: `{pid, argv, cwd}` of the running server, `server`: what it
    says of its arguments. `secrets`: the names by which masked values go, each with the file in which it stands.
    """
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9:_.\\@-]*", unit_name):
        raise AgentError(f"not a name of a unit: {unit_name!r}")
    state = unit.state_of(unit_name)
    if not state.get("exists") or not state.get("path"):
        raise AgentError(
            f"this host has no unit {unit_name}", hint="systemctl list-units --type=service, on the host"
        )
    texts = {path: Path(path).read_text(errors="replace") for path in [state["path"], *state["drop_ins"]]}
    joined = "\n".join(texts.values())
    environment = _texts(_resolved(path, unit_name) for path in _ENVIRONMENT_FILE.findall(joined))
    scripts = {path: text for path, text in _texts(_PATH.findall(joined)).items() if _is_script(path)}
    for text in list(scripts.values()):
        scripts.update(
            {
                path: more
                for path, more in _texts(_PATH.findall(text)).items()
                if path.endswith((".sh", ".env"))
            }
        )
    process = served.server_process(state)
    words = process["argv"] if process else []
    configs = _texts(_CONFIG.findall("\n".join([joined, *scripts.values(), " ".join(words)])))
    masks = Masks()
    sources = {**texts, **environment, **scripts, **configs}
    masks.learn_lines(environment.values())
    masks.learn([*sources.values(), " ".join(words)])
    server = answers(process, unit_name)
    return {
        "schema": "ddtool.unit/1",
        "unit": unit_name,
        "hostname": socket.gethostname(),
        "state": {**state, "processes": len(state["processes"])},
        "texts": masks.all(texts),
        "environment_files": masks.all(environment),
        "scripts": masks.all(scripts),
        "configs": masks.all(configs),
        "process": {**process, "argv": masks.words(words)} if process else None,
        "server": {key: server[key] for key in _RESOLVED if key in server},
        "homes": {user: _home(user) for user in _USER.findall(joined)},
        "secrets": {
            name: next((path for path, text in sources.items() if value in text), "its command line")
            for value, name in masks.names.items()
        },
    }


@op("unit.engine")
def engine(
    ctx: Context, python: str, venv: Optional[str], cwd: Optional[str], paths: List[str]
) -> Dict[str, Any]:
    """`{venv, shadow, models: {path: facts}}`: the installation that this Python belongs to, and the checkpoints.

    `shadow`: `python -m sglang…` in `cwd` finds a package there first. A relative path is tried below `cwd`.
    """
    folder = Path(venv) if venv else Path(python).parent.parent
    return {
        "venv": facts.venv_facts(folder),
        "shadow": bool(cwd) and Path(str(cwd), "sglang", "__init__.py").exists(),
        "models": {path: facts.model_facts(Path(cwd or "/", path)) for path in paths},
    }


def answers(process: Optional[Dict[str, Any]], unit_name: str) -> Dict[str, Any]:
    """What the running server says of its own arguments; {} when it does not answer."""
    if not process:
        return {}
    at = served.of_arguments(process["argv"], process["cwd"], unit_name)
    for path in ("/server_info", "/get_server_info"):
        try:
            answer = client.request(at["address"], at["port"], path, api_key=at["api_key"], timeout=5.0)
        except OSError:
            return {}
        if answer.status == 200 and isinstance(answer.body, dict):
            return dict(answer.body)
    return {}


def _texts(paths: Any) -> Dict[str, str]:
    """Path → text of those that are small files."""
    found = {}
    for path in paths:
        try:
            if Path(path).is_file() and Path(path).stat().st_size <= SIZE:
                found[path] = Path(path).read_text(errors="replace")
        except OSError:
            continue
    return found


def _is_script(path: str) -> bool:
    return path.endswith(".sh") or _SHEBANG.match(Path(path).read_bytes()[:64]) is not None


def _resolved(path: str, name: str) -> str:
    """The specifiers that stand in such paths."""
    prefix, _, instance = name.partition("@")
    for letter, value in (("%n", unit.service(name)), ("%N", name), ("%p", prefix), ("%i", instance)):
        path = path.replace(letter, value)
    return path


def _home(user: str) -> Optional[str]:
    try:
        return pwd.getpwnam(user).pw_dir
    except KeyError:
        return None
