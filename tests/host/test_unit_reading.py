"""Units are read as systemd and the shell run them: each is started for real, with a program that says what it got."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from support import handmade_units as units
from support.handmade_units import Made
from support.remote import output, until

from ddtool.agent.foreign import Masks
from ddtool.profile import from_unit
from ddtool.sandbox import Sandbox

pytestmark = pytest.mark.host

SAYS = """#!/usr/bin/python3 -I
import json, os, sys
with open("/tmp/said", "w") as file:
    json.dump([sys.argv, dict(os.environ)], file)
"""
WRAPPER = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'
ACTIVATE = 'export VIRTUAL_ENV={0} PATH="{0}/bin:$PATH"\n'
VENVS = ("/opt/venv", "/opt/sglang", "/opt/fork", "/srv/kimi/.venv", "/root/venv_sglang211")
NOT_STARTED = {"container", "computed"}  # what these say is read from elsewhere


@pytest.fixture(scope="module")
def listener(host: Sandbox) -> Sandbox:
    """A host on which everything that the units start says its arguments and environment."""
    files = {"/usr/local/bin/numactl": WRAPPER, "/srv/kimi/common.env": ""}
    for venv in VENVS:
        files |= {f"{venv}/bin/{name}": SAYS for name in ("python", "python3", "python3.11", "sglang")}
        files[f"{venv}/bin/activate"] = ACTIVATE.format(venv)
    write(host, files)
    output(
        host, "useradd llm; chmod +x /usr/local/bin/numactl /opt/*/bin/* /srv/kimi/.venv/bin/* /root/*/bin/*"
    )
    output(
        host,
        "mkdir -p /srv/k26 /root/sglang/python; chmod 1777 /tmp; chown -R llm /srv/kimi; mkdir -m 777 /var/log/kimi",
    )
    return host


def write(host: Sandbox, files: dict[str, str]) -> None:
    script = "import base64, json, pathlib, sys\nfor path, data in json.load(sys.stdin).items():\n"
    script += "    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)\n"
    script += "    pathlib.Path(path).write_bytes(base64.b64decode(data))\n"
    encoded = {path: base64.b64encode(text.encode()).decode() for path, text in files.items()}
    output(host, f"python3 -I -c '{script}'", input=json.dumps(encoded))


def said_by(host: Sandbox, made: Made) -> tuple[list[str], dict[str, str]]:
    """Start the unit; what its program was given."""
    write(host, {**made.texts, **made.environment_files, **made.scripts, **made.configs})
    for script in made.scripts:
        output(host, f"chmod +x {script}")
    output(host, f"rm -f /tmp/said; systemctl daemon-reload; systemctl start --no-block {made.unit}")
    text = until(lambda: output(host, "cat /tmp/said 2>/dev/null || true"))
    paths = " ".join(made.texts)
    output(
        host, f"systemctl stop {made.unit}; rm -f {paths}; systemctl daemon-reload; systemctl reset-failed"
    )
    argv, environment = json.loads(text)
    masks = Masks()
    masks.learn_lines(made.environment_files.values())
    masks.learn([*made.texts.values(), *made.scripts.values()])
    at = next(at for at, word in enumerate(argv) if word in ("sglang.launch_server", "serve"))
    return masks.words(argv[at + 1 :]), {name: masks.clean(value) for name, value in environment.items()}


@pytest.mark.parametrize("name", sorted(units.ALL.keys() - NOT_STARTED))
def test_read_as_it_runs(listener: Sandbox, name: str) -> None:
    made = units.ALL[name]
    started = from_unit.what_starts(made.found())
    words, environment = said_by(listener, made)
    assert started.launch.flags == words
    given: dict[str, Any] = {**started.environment, **started.launch.env}
    assert {variable: environment.get(variable) for variable in given} == given
