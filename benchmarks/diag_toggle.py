"""How long the two commands take that put every patch of one file in and out again, on a throwaway sandbox host.

    python benchmarks/diag_toggle.py --wheel sglang-0.5.12.post1-….whl [--rounds N]

The whole wheel is unpacked there and no service runs, so nothing restarts. Each command is a process of its own, from
its start to its exit. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import time
import zipfile
from io import BytesIO
from pathlib import Path

from ddtool import sandbox
from ddtool.diagnostics import definition

HOST = "diag-toggle"
VENV = "/opt/toggle/venv"
FILE = "sglang/srt/model_executor/cuda_graph_runner.py"
DDTOOL = str(Path(sys.executable).with_name("ddtool"))
PROFILE = f"""
description: a venv to toggle patches in
service: {{unit: toggle, port: 31999}}
engine: {{venv: {VENV}, provider: builtin, release: RELEASE}}
model: {{path: /opt/toggle/model}}
attention_backend: triton
"""


def install(host: sandbox.Sandbox, wheel: Path) -> None:
    inside(host, f"mkdir -p {VENV}/bin {VENV}/lib && ln -sf $(command -v python3) {VENV}/bin/python")
    version = inside(
        host, f"{VENV}/bin/python -c 'import sys; print(\"python%d.%d\" % sys.version_info[:2])'"
    ).strip()
    buffer = BytesIO()
    with zipfile.ZipFile(wheel) as archive, tarfile.open(fileobj=buffer, mode="w") as tar:
        for item in archive.infolist():
            member = tarfile.TarInfo(f"{VENV}/lib/{version}/site-packages/{item.filename}".lstrip("/"))
            member.size = item.file_size
            tar.addfile(member, BytesIO(archive.read(item)))
    ssh = ["ssh", "-F", str(host.ssh_config), host.name, "tar -xf - -C /"]
    subprocess.run(ssh, input=buffer.getvalue(), check=True)


def inside(host: sandbox.Sandbox, command: str) -> str:
    done = sandbox.exec_inside(host, ["sh", "-c", command])
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def timed(profile: Path, *args: str) -> tuple[float, int]:
    """Seconds, and the round trips that the command reports."""
    command = [DDTOOL, "diag", *args, "-p", str(profile), "--host", f"sandbox:{HOST}", "--yes", "--json"]
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(done.stderr)
    said = json.loads(done.stdout)
    assert said["changed"] and said["ok"], said
    return seconds, said["round_trips"]


def summary(runs: list[tuple[float, int]]) -> dict[str, float]:
    seconds = sorted(run[0] for run in runs)
    return {
        "median_s": round(statistics.median(seconds), 2),
        "min_s": round(seconds[0], 2),
        "max_s": round(seconds[-1], 2),
        "round_trips": max(run[1] for run in runs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    release = args.wheel.name.split("-")[1]
    names = [
        patch.name
        for patch in definition.load_all()
        if any(target.file == FILE and release in target.releases for target in patch.targets)
    ]
    host = sandbox.up(HOST, owner=os.getpid())
    profile = Path(f"/tmp/ddtool-{HOST}-{os.getpid()}.yaml")
    profile.write_text(PROFILE.replace("RELEASE", release))
    try:
        install(host, args.wheel)
        timed(profile, "enable", *names)  # the agent's program is sent once to a host
        timed(profile, "disable", *names)
        runs = [
            (timed(profile, "enable", *names), timed(profile, "disable", *names)) for _ in range(args.rounds)
        ]
    finally:
        profile.unlink()
        sandbox.down(HOST)
    enable, disable = ([run[side] for run in runs] for side in (0, 1))
    about = {"release": release, "file": FILE, "patches": names, "rounds": args.rounds}
    machine = {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
    print(
        json.dumps(
            {**about, "enable": summary(enable), "disable": summary(disable), "machine": machine}, indent=1
        )
    )


if __name__ == "__main__":
    main()
