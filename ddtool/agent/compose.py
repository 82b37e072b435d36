"""file = compose(baseline bytes, enabled patches), computed by the engine's own Python."""

from __future__ import annotations

import base64
import json
import pkgutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .disk import sha256
from .errors import AgentError, PreflightError, UsageError

Json = Dict[str, Any]
DEADLINE_S = 60
PARTS = ("compose_syntax", "compose_script")
# That Python cannot import from this program, which may live in memory only: its parts travel as text.
LOADER = """
import json, sys, types
package = sys.modules["parts"] = types.ModuleType("parts")
package.__path__ = []
for name, text in json.loads(sys.argv[1]):
    module = sys.modules["parts." + name] = types.ModuleType("parts." + name)
    module.__package__ = "parts"
    exec(compile(text, name + ".py", "exec"), module.__dict__)
module.main()
"""


@dataclass(frozen=True)
class Composed:
    """patches: names of those that edit this file; the others' code for this release is in other files.

    unknown: functions whose version a patch does not know: `{patch, file, function, ast_sha256, source, edits}`.
    """

    content: bytes
    patches: List[str]
    unknown: List[Json]


def canonical(definition: Json) -> bytes:
    """The bytes of a patch definition whose sha256 is the patch's identity in ledger, markers and proofs."""
    return json.dumps(definition, sort_keys=True, separators=(",", ":")).encode()


def patch_sha(definition: Json) -> str:
    return sha256(canonical(definition))


def compose(
    venv: str, jobs: Sequence[Tuple[str, bytes, Sequence[Json]]], version: Optional[str] = None
) -> List[Composed]:
    """One result per job (file, baseline bytes, definitions), in one run of `venv`/bin/python.

    `version`: the installed one; it orders the guesses for functions that no patch knows.
    Raises UsageError when a patch does not fit or two collide, PreflightError without that Python.
    """
    if not jobs:
        return []
    request = json.dumps({"version": version, "jobs": [job_of(*job) for job in jobs]})
    python = Path(venv) / "bin" / "python"
    command = [str(python), *program()]
    try:
        run = subprocess.run(
            command, input=request, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    except OSError as error:
        raise PreflightError(
            f"cannot run {python}: {error.strerror}", "check engine.venv in the profile"
        ) from error
    if run.returncode:
        raise AgentError(f"{python} failed to compose the patches: {run.stderr.strip()[-500:]}")
    answer = json.loads(run.stdout)
    if "error" in answer:
        raise UsageError(answer["error"], "`ddtool diag show NAME` prints what the patch expects")
    return [
        Composed(base64.b64decode(one["content"]), one["patches"], one["unknown"]) for one in answer["files"]
    ]


def program() -> List[str]:
    """Arguments with which any Python composes what stdin asks for."""
    parts = []
    for name in PARTS:
        text = pkgutil.get_data(__package__, f"{name}.py")
        assert text is not None
        parts.append((name, text.decode()))
    return ["-I", "-S", "-B", "-c", LOADER, json.dumps(parts)]


def job_of(file: str, content: bytes, patches: Sequence[Json]) -> Json:
    """One file of the script's request: of each patch the targets in this file, its identity filled in."""
    wanted = [
        {"name": patch["name"], "targets": [_target(patch, t) for t in patch["targets"] if t["file"] == file]}
        for patch in patches
    ]
    return {"file": file, "content": base64.b64encode(content).decode(), "patches": wanted}


def _target(patch: Json, target: Json) -> Json:
    """The target with the patch's identity written into its code."""
    marks = {
        "@DDTOOL_PATCH@": patch["name"],
        "@DDTOOL_SHA@": patch_sha(patch),
        "@DDTOOL_FILE@": target["file"],
    }

    def fill(text: str) -> str:
        for mark, value in marks.items():
            text = text.replace(mark, value)
        return text

    edits = [{**edit, "code": fill(edit["code"])} for edit in target["edits"]]
    return {**target, "edits": edits, "append": fill(target["append"]) if target.get("append") else None}
