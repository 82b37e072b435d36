"""Does ddtool's engine answer in this host's SGLang? Asked of SGLang itself, in a process of the venv's Python."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict

from .errors import AgentError
from .registry import Context, op

IMPORT_S = 170.0


@op("engine.check")
def check(ctx: Context, venv: str, files: Dict[str, str], env: Dict[str, str]) -> Dict[str, Any]:
    """`files`: the engine as a release carries it, base64; `env`: the service's own variables.

    Returns `{engine, sglang, provider, error}`. SGLang only logs what a plugin raises, so that it loads must be
    looked at. Nothing stays on the host.
    """
    with tempfile.TemporaryDirectory(prefix="ddtool-engine-") as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))
        try:
            done = subprocess.run(
                [f"{venv}/bin/python", "-B", "-m", "ddtool_engine.check"],
                env={**os.environ, **env, "PYTHONPATH": folder, "HOME": folder},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=IMPORT_S,
                stdin=subprocess.DEVNULL,
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            raise AgentError(f"{venv}: importing SGLang took longer than {IMPORT_S:.0f} s") from None
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            answer: Dict[str, Any] = json.loads(line)
            return answer
    raise AgentError(f"{venv}: SGLang cannot be imported: {done.stderr.strip()[-1500:]}")
