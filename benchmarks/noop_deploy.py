"""A deploy that has nothing to do: ddtool beside ansible-core and pyinfra, on the same throwaway sandbox host.

    python benchmarks/noop_deploy.py [--rounds 5] [--rtt-ms 50] [--tools FOLDER]

Each tool keeps the same things in place: a release folder with SGLang's config (0600), an environment file (0600) and
the engine's files (one archive, unpacked when it changes), the unit file, the unit enabled and started, and `/health`
answering. ddtool does more in the same time: it checks the installed wheel against its RECORD, the checkpoints, ports,
patches, what is in flight, and who holds the host.

The arms take turns, so that a busy machine is as busy for all of them; what counts is the ratio of the medians. Each
run is a process of its own, from its start to its exit. ansible-core runs as it comes, and at its best (pipelining, no
fact gathering, the interpreter named); it keeps its ssh connection between runs (ControlPersist), the others open a new
one. `--rtt-ms` has the sandbox's network deliver each byte half of that later each way; a connect() alone is not
delayed. The two tools are installed into a throwaway venv with pip (or lie in FOLDER already). Prints one JSON object.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from support import faults, mini  # noqa: E402

from ddtool import sandbox  # noqa: E402
from ddtool.engine import engine_files  # noqa: E402

HOST = "noop"
DDTOOL = str(Path(sys.executable).with_name("ddtool"))
FLOOR = "exec"
OURS = "/var/lib/ddtool/services/sglang-mini/releases"

PLAYBOOK = """
- hosts: all
  gather_facts: {gather}
  tasks:
    - file: {{path: /opt/arm, state: directory, mode: "0700"}}
    - copy: {{src: config.yaml, dest: /opt/arm/config.yaml, mode: "0600"}}
    - copy: {{src: env, dest: /opt/arm/env, mode: "0600"}}
    - copy: {{src: engine.tar, dest: /opt/arm/engine.tar, mode: "0600"}}
      register: engine
    - unarchive: {{src: /opt/arm/engine.tar, dest: /opt/arm, remote_src: true}}
      when: engine.changed
    - copy: {{src: arm.service, dest: /etc/systemd/system/arm.service, mode: "0644"}}
      register: unit
    - systemd: {{name: arm.service, enabled: true, state: started, daemon_reload: "{{{{ unit.changed }}}}"}}
    - uri: {{url: "http://127.0.0.1:31001/health"}}
"""
HEALTH = (
    "exec 3<>/dev/tcp/127.0.0.1/31001; printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3; grep -q ' 200 ' <&3"
)
PYINFRA = """
from pyinfra.operations import files, server, systemd

files.directory(path="/opt/arm", mode="700")
files.put(src="config.yaml", dest="/opt/arm/config.yaml", mode="600")
files.put(src="env", dest="/opt/arm/env", mode="600")
engine = files.put(src="engine.tar", dest="/opt/arm/engine.tar", mode="600")
server.shell(commands=["tar -xf /opt/arm/engine.tar -C /opt/arm"], _if=engine.did_change)
unit = files.put(src="arm.service", dest="/etc/systemd/system/arm.service", mode="644")
systemd.daemon_reload(_if=unit.did_change)
systemd.service(service="arm.service", running=True, enabled=True)
server.shell(commands=["bash /opt/arm/health"])
"""


def prepare(host: sandbox.Sandbox, work: Path) -> dict[str, list[str]]:
    """Deploy once with ddtool, give the other tools the same files under a name of their own: arm → command line."""
    mini.install(host)
    ours = [DDTOOL, "deploy", str(mini.PROFILE), "--host", f"sandbox:{HOST}", "--yes", "--json"]
    subprocess.run(ours, check=True, capture_output=True)
    release = inside(host, f"ls -d {OURS}/*").strip()
    for name in ("config.yaml", "env"):
        text = inside(host, f"cat {release}/{name}")
        (work / name).write_text(text.replace("31000", "31001").replace(release, "/opt/arm"))
    unit = inside(host, "cat /etc/systemd/system/sglang-mini.service").replace(release, "/opt/arm")
    unit = "".join(
        line for line in unit.splitlines(True) if not line.startswith(("ExecStopPost", "Condition"))
    )
    (work / "arm.service").write_text(unit.replace("sglang-mini", "arm").replace("31000", "31001"))
    archive(work / "engine.tar")
    reached = {"ssh_hostname": host.address, "ssh_port": host.port, "ssh_user": "root"}
    reached["ssh_key"] = str(host.ssh_config.with_name("id_ed25519"))
    reached["ssh_known_hosts_file"] = str(host.ssh_config.with_name("known_hosts"))
    (work / "inventory.py").write_text(f"hosts = [({host.name!r}, {reached!r})]\n")
    (work / "hosts").write_text(f"{host.name} ansible_ssh_common_args='-F {host.ssh_config}'\n")
    (work / "default.yml").write_text(PLAYBOOK.format(gather="true"))
    (work / "tuned.yml").write_text(PLAYBOOK.format(gather="false"))
    (work / "deploy.py").write_text(PYINFRA)
    sandbox.exec_inside(host, ["sh", "-c", "mkdir -p /opt/arm && cat > /opt/arm/health"], input=HEALTH)
    return {"ddtool": ours, FLOOR: ["ssh", "-F", str(host.ssh_config), host.name, "true"]}


def archive(path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in sorted(engine_files().items()):
            member = tarfile.TarInfo(f"engine/{name}")
            member.size = len(data)
            tar.addfile(member, BytesIO(data))


def inside(host: sandbox.Sandbox, command: str) -> str:
    done = sandbox.exec_inside(host, ["sh", "-c", command])
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def others(tools: Path, host: sandbox.Sandbox) -> dict[str, list[str]]:
    ansible = [str(tools / "bin/ansible-playbook"), "-i", "hosts"]
    python = ["-e", "ansible_python_interpreter=/usr/bin/python3"]
    pyinfra = [str(tools / "bin/pyinfra"), "-y", "inventory.py", "deploy.py"]
    return {
        "ansible-core, as it comes": [*ansible, "default.yml"],
        "ansible-core, pipelining": [*ansible, *python, "tuned.yml"],
        "pyinfra": pyinfra,
    }


def environment(arm: str, work: Path) -> dict[str, str]:
    kept = {**os.environ, "ANSIBLE_HOME": str(work / "ansible"), "ANSIBLE_NOCOWS": "1"}
    if arm == "ansible-core, pipelining":
        kept["ANSIBLE_PIPELINING"] = "1"
    return kept


def timed(arm: str, command: list[str], work: Path) -> tuple[float, float]:
    """Seconds on the clock, and of this machine's processor by the tool and what it started."""
    begun, used = time.perf_counter(), processor_s()
    done = subprocess.run(
        command,
        cwd=work,
        env=environment(arm, work),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(f"{arm}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    check_unchanged(arm, done.stdout + done.stderr)
    return seconds, processor_s() - used


def processor_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def check_unchanged(arm: str, said: str) -> None:
    """Each tool must itself say that there was nothing to do."""
    if arm == "ddtool" and '"changed": false' not in said:
        raise RuntimeError(said)
    if arm.startswith("ansible") and ("changed=0" not in said or "ok=7" not in said.replace("ok=8", "ok=7")):
        raise RuntimeError(said)
    if arm == "pyinfra":
        total = next(line.split() for line in said.splitlines() if "Grand total" in line)
        changed, failed, same = total[-3:]
        if failed != "-" or changed != "1" or same == "-":  # the health check is a command: always a change
            raise RuntimeError(said)


def measure(arms: dict[str, list[str]], work: Path, rounds: int) -> dict[str, list[tuple[float, float]]]:
    seconds: dict[str, list[tuple[float, float]]] = {arm: [] for arm in arms}
    for number in range(rounds):
        for arm in list(arms)[number % len(arms) :] + list(arms)[: number % len(arms)]:
            seconds[arm].append(timed(arm, arms[arm], work))
            print(f"{arm}: {seconds[arm][-1][0]:.2f} s", file=sys.stderr)
    return seconds


def summary(measured: dict[str, list[tuple[float, float]]]) -> dict[str, dict[str, object]]:
    """`times_ddtool`: the ratio of the medians; `processor_s`: the median, which load on the machine changes little."""
    ours = statistics.median(seconds for seconds, _ in measured["ddtool"])
    found: dict[str, dict[str, object]] = {}
    for arm, runs in measured.items():
        seconds = [run[0] for run in runs]
        found[arm] = {
            "median_s": round(statistics.median(seconds), 2),
            "times_ddtool": round(statistics.median(seconds) / ours, 1),
            "runs_s": [round(one, 2) for one in seconds],
            "processor_s": round(statistics.median(run[1] for run in runs), 2),
        }
    return found


def tools_in(folder: Path | None, work: Path) -> Path:
    if folder is not None:
        return folder.resolve()
    made = work / "tools"
    subprocess.run([sys.executable, "-m", "venv", str(made)], check=True)
    pip = [str(made / "bin/pip"), "install", "--quiet", "ansible-core", "pyinfra"]
    subprocess.run(pip, check=True, stdout=subprocess.DEVNULL)
    return made


def versions(tools: Path) -> dict[str, str]:
    site = next(tools.glob("lib/python3*/site-packages"))
    found = importlib.metadata.distributions(path=[str(site)])
    return {dist.name: dist.version for dist in found if dist.name in ("ansible-core", "pyinfra")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rtt-ms", type=float, default=50.0, help="of the second series; 0 leaves it out")
    parser.add_argument("--tools", type=Path, help="a venv with ansible-core and pyinfra")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ddtool-noop-") as folder:
        work = Path(folder)
        tools = tools_in(options.tools, work)
        host = sandbox.up(HOST, owner=os.getpid())
        try:
            arms = {**prepare(host, work), **others(tools, host)}
            for arm in [arm for arm in arms if arm not in ("ddtool", FLOOR)]:
                run_until_settled(arm, arms[arm], work)
            series: dict[str, Callable[[], None]] = {"local": lambda: None}
            if options.rtt_ms:
                series[f"{options.rtt_ms:.0f} ms round trip"] = lambda: faults.delay(
                    host, options.rtt_ms / 2000
                )
            found = {}
            for name, set_up in series.items():
                set_up()
                found[name] = summary(measure(arms, work, options.rounds))
        finally:
            sandbox.down(HOST)
        about = {
            "tools": versions(tools),
            "rounds": options.rounds,
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
        }
        print(json.dumps({**about, "seconds": found}, indent=1))


def run_until_settled(arm: str, command: list[str], work: Path) -> None:
    """The first run puts everything there and starts the unit, whose `/health` answers a little later."""
    for last in (False, False, False, False, True):
        try:
            timed(arm, command, work)
            return
        except RuntimeError:
            if last:
                raise
            time.sleep(2.0)


if __name__ == "__main__":
    main()
