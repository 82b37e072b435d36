"""How long the commands that look take on a host with a long history, on a throwaway sandbox host.

    python benchmarks/scale.py [--releases 500] [--files 200000] [--journal-mb 500] [--rounds 5]

A small real service is deployed, then its past is made up: audit lines and kept transactions of so many releases, a
journal of about so many megabytes of the service's own lines, so many files in the venv's site-packages, one in twenty
of them in the package that RECORD lists. Each command is a process of its own, from its start to its exit. Prints one
JSON object; exit 1 when `status` takes 2 s or more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from support import mini  # noqa: E402

from ddtool import sandbox  # noqa: E402

HOST = "scale"
DDTOOL = str(Path(sys.executable).with_name("ddtool"))
BOUND_S = 2.0
COMMANDS = {
    "status": ["status"],
    "explain": ["explain"],
    "releases": ["releases"],
    "audit": ["audit"],
    "diag status": ["diag", "status"],
    "deploy, nothing to do": ["deploy", str(mini.PROFILE), "--yes"],
    "logs, the last 50": ["logs", "--lines", "50"],
    "crash last": ["crash", "last"],
}

PAST = r"""
import glob, json, os, shutil, sys, time
count = int(sys.argv[1])
state = "/var/lib/ddtool"
lines = open(state + "/audit.jsonl").read().splitlines()
seed = json.loads(lines[0])
with open(state + "/audit.jsonl", "w") as audit:
    for number in range(count * 2):
        audit.write(json.dumps({**seed, "unix": seed["unix"] - 3600 * (count * 2 - number), "txn": "past-%d" % number,
                                "why": "a reason of some words, number %d" % number}) + "\n")
    audit.write("\n".join(lines) + "\n")
run = sorted(glob.glob(state + "/txn/*"))[-1]
for number in range(count):
    shutil.copytree(run, state + "/txn/20200101T%06d-past" % number)
"""
FILES = r"""
import glob, hashlib, base64, os, sys
count = int(sys.argv[1])
site, = glob.glob("/opt/mini/venv/lib/python3*/site-packages")
record, = glob.glob(site + "/sglang-*.dist-info/RECORD")
data = b"x = 1\n" * 200
digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
with open(record, "a") as rows:
    for number in range(count):
        package = "sglang" if number % 20 == 0 else "other%d" % (number % 40)
        folder = "%s/many/p%d" % (package, number // 500)
        os.makedirs(site + "/" + folder, exist_ok=True)
        with open("%s/%s/m%d.py" % (site, folder, number), "wb") as file:
            file.write(data)
        if package == "sglang":
            rows.write("%s/m%d.py,sha256=%s,%d\n" % (folder, number, digest, len(data)))
"""
CHATTER = r"""
import sys
line = "[2026-01-01 00:00:00 TP0] Decode batch, #running-req: 4, #token: 1234, gen throughput (token/s): 150.1, " * 4
for number in range(int(sys.argv[1])):
    print(number, line)
"""


def inside(host: sandbox.Sandbox, command: str, text: str | None = None) -> str:
    done = sandbox.exec_inside(host, ["sh", "-c", command], input=text, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr}")
    return done.stdout


def make_past(host: sandbox.Sandbox, releases: int, files: int, journal_mb: int) -> float:
    """Megabytes of journal that came of it."""
    inside(host, f"python3 - {releases}", PAST)
    inside(host, f"python3 - {files}", FILES)
    inside(host, "mkdir -p /run/systemd/journald.conf.d")
    limits = "[Journal]\nSystemMaxUse=4G\nSystemMaxFileSize=128M\nSystemKeepFree=1M\n"
    inside(
        host, "cat > /run/systemd/journald.conf.d/zz-large.conf && systemctl restart systemd-journald", limits
    )
    inside(host, "cat > /run/chatter.py", CHATTER)
    drop_in = "/etc/systemd/system/sglang-mini.service.d"
    lines = journal_mb * 1024  # about a kilobyte each, with journald's own fields
    text = f"[Service]\nTimeoutStartSec=infinity\nExecStartPre=/usr/bin/python3 /run/chatter.py {lines}\n"
    inside(host, f"mkdir -p {drop_in} && cat > {drop_in}/chatter.conf && systemctl daemon-reload", text)
    inside(
        host, "systemctl restart sglang-mini && rm " + drop_in + "/chatter.conf && systemctl daemon-reload"
    )
    time.sleep(2)
    return float(
        inside(host, "du -sm /var/log/journal /run/log/journal 2>/dev/null | awk '{s+=$1} END {print s}'")
    )


def run(args: list[str]) -> float:
    begun = time.perf_counter()
    environment = {**os.environ, "DDTOOL_HOST": f"sandbox:{HOST}", "DDTOOL_PROFILE": str(mini.PROFILE)}
    done = subprocess.run(
        [DDTOOL, *args], env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    seconds = time.perf_counter() - begun
    if done.returncode not in (0, 7):
        raise RuntimeError(f"{args}: {done.stderr}")
    return seconds


def measure(rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, args in COMMANDS.items():
            seconds[name].append(run(args))
    return {name: round(statistics.median(runs), 2) for name, runs in seconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--releases", type=int, default=500)
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--journal-mb", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ddtool-scale-") as home:
        os.environ.update({f"XDG_{kind}_HOME": home for kind in ("STATE", "CONFIG", "CACHE", "DATA")})
        host = sandbox.up(HOST, owner=os.getpid())
        try:
            mini.install(host)
            run(COMMANDS["deploy, nothing to do"])
            young = measure(options.rounds)
            journal = make_past(host, options.releases, options.files, options.journal_mb)
            run(COMMANDS["deploy, nothing to do"])  # it has something to do: RECORD is another one
            old = measure(options.rounds)
        finally:
            sandbox.down(HOST)
    about = {
        **vars(options),
        "journal_mb": journal,
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps({**about, "young_s": young, "old_s": old}, indent=1))
    return int(old["status"] >= BOUND_S)


if __name__ == "__main__":
    sys.exit(main())
