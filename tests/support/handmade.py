"""A service as somebody made it by hand before ddtool: a unit with a key in it, drop-ins, links, odd modes."""

from __future__ import annotations

import json
from typing import Any

from support import mini
from support.remote import output, until

from ddtool.sandbox import Sandbox, exec_inside

NAME = "sglang-k26"
PORT = 31000
KEY = "sk-handmade-0123456789"
UNITS = "/etc/systemd/system"
UNIT = f"""# Kimi on the box, 2025-11 (do not touch, ask Jo)\r
[Unit]
Description=SGLang for the team
After=network-online.target nvidia-persistenced.service

[Service]
WorkingDirectory=/opt/mini
Environment=PYTHONUNBUFFERED=1 "NCCL_PROTO=LL128" MINI_NOTE='two words'
EnvironmentFile=-/etc/sglang/%p.env
ExecStart=/bin/bash -c "exec {mini.VENV}/bin/python -m sglang.launch_server \\
    --model-path {mini.MODEL} --served-model-name mini --tp-size 2 --device=cpu \\
    --host 127.0.0.1 --port {PORT} --api-key {KEY} --attention-backend triton \\
    --speculative-algorithm DFLASH --speculative-draft-model-path {mini.DRAFTER} \\
    --speculative-num-draft-tokens 8 --cuda-graph-max-bs 4"
Restart=always
LimitNOFILE=65536
TimeoutStopSec=20

[Install]
WantedBy=default.target
Alias=kimi.service
"""
DROP_INS = {
    "10-context.conf": "[Service]\nEnvironment=MINI_CONTEXT=1\n",
    "20-nice.conf": "[Service]\nNice=5\n",
}
ENVIRONMENT = "# tokens\nHF_TOKEN=hf_abcdefghijklmnopqrst\nTOKENIZERS_PARALLELISM=false\n"

# Path → type, mode, owner and bytes of everything that belongs to the unit.
LOOK = """
import glob, hashlib, json, os, subprocess, sys
name = sys.argv[1] + ".service"
top = "/etc/systemd/system/"
paths = [top + name, top + name + ".d", *glob.glob(top + name + ".d/*"), *glob.glob(top + "*.wants/" + name)]
paths += [path for path in glob.glob(top + "*.service") if os.path.islink(path) and name in os.readlink(path)]
found = {}
for path in paths:
    if os.path.lexists(path):
        stat = os.lstat(path)
        what = ""
        if os.path.islink(path):
            what = os.readlink(path)
        elif os.path.isfile(path):
            what = hashlib.sha256(open(path, "rb").read()).hexdigest()
        found[path] = [oct(stat.st_mode), stat.st_uid, stat.st_gid, what]
found["enabled"] = subprocess.run(["systemctl", "is-enabled", name], stdout=subprocess.PIPE).stdout.decode()
print(json.dumps(found))
"""


def install(host: Sandbox, unit: str = UNIT, *, name: str = NAME, start: bool = True) -> None:
    """The unit, two drop-ins, its environment file; enabled, and running unless told otherwise."""
    folder = f"{UNITS}/{name}.service.d"
    files = {f"{UNITS}/{name}.service": unit, f"/etc/sglang/{name}.env": ENVIRONMENT}
    files |= {f"{folder}/{file}": text for file, text in DROP_INS.items()}
    for path, text in files.items():
        output(host, f"mkdir -p $(dirname {path}) && cat > {path}", input=text)
    odd = f"chmod 0640 {UNITS}/{name}.service && chgrp adm {UNITS}/{name}.service && chmod 0600 {folder}/20-nice.conf"
    output(host, f"{odd} && chmod 0750 {folder} && systemctl daemon-reload && systemctl enable -q {name}")
    if start:
        output(host, f"systemctl start {name}")
        until(lambda: f":{PORT}" in output(host, "ss -ltn"))


def look(host: Sandbox, name: str = NAME) -> dict[str, Any]:
    done = exec_inside(host, ["python3", "-I", "-c", LOOK, name])
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def invocation(host: Sandbox, name: str = NAME) -> str:
    return output(host, f"systemctl show {name} -p InvocationID --value")
