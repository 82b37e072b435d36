"""A sandbox is a real systemd host, fails in the ways asked for, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from support.remote import output, ssh, ssh_argv, until

from ddtool import sandbox
from ddtool.errors import NameNotResolved, UsageError
from ddtool.sandbox import cgroups

pytestmark = pytest.mark.host


def start_unit(host, name, body):
    output(host, f"cat > /etc/systemd/system/{name}.service", input=body)
    output(host, f"systemctl daemon-reload && systemctl start --no-block {name}")


def show(host, unit, *properties):
    lines = output(host, f"systemctl show {unit} -p {','.join(properties)}").splitlines()
    return dict(line.split("=", 1) for line in lines)


def when_failed(host, unit, *properties):
    def failed():
        now = show(host, unit, "ActiveState", *properties)
        return now["ActiveState"] == "failed" and now

    return until(failed)


def boot_id(host):
    return ssh(host, "cat /proc/sys/kernel/random/boot_id").stdout.strip()


def processes(name):
    """Pids of the sandbox's supervisor, of the one that cleans up behind it, and of all that runs inside."""
    state = Path(os.environ["DDTOOL_SANDBOX_STATE"])
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            ours = any(argument.startswith(f"{state}/{name}/") for argument in arguments)
            ours |= "ddtool.sandbox.reaper" in arguments and name in arguments
            ours |= f"/{cgroups.parent(state)}/{name}" in (process / "cgroup").read_text()
            ours |= f"{state}/{name}/" in (process / "mountinfo").read_text()
            if ours:
                found.add(int(process.name))
    return found


def traces(name):
    """Everything of a sandbox that this machine still has: processes, mounts (in theirs), folders, cgroups."""
    state = Path(os.environ["DDTOOL_SANDBOX_STATE"])
    folders = [state / name, *(top / cgroups.parent(state) / name for top in cgroups.hierarchies().values())]
    return [*processes(name), *(folder for folder in folders if folder.exists())]


def test_boots_to_running_with_nothing_failed(host):
    state = output(host, "systemctl is-system-running; systemctl --failed --no-legend; readlink /proc/1/exe")
    assert state.split() == ["running", "/usr/lib/systemd/systemd"]


def test_up_finds_it_booted(host):
    assert sandbox.up(host.name).pid == host.pid
    assert sandbox.find(host.name) == host
    assert host in sandbox.running()


def test_up_with_other_layers_is_refused(host, tmp_path):
    with pytest.raises(UsageError, match="up already"):
        sandbox.up(host.name, layers=[tmp_path])


def test_find_names_the_next_command():
    with pytest.raises(NameNotResolved) as caught:
        sandbox.find("nobody")
    assert caught.value.hint == "ddtool sandbox up nobody"


def test_keys_and_state_are_roots_alone(host):
    assert host.state.stat().st_mode & 0o777 == 0o700
    assert host.state.parent.stat().st_mode & 0o777 == 0o700
    assert host.key.stat().st_mode & 0o777 == 0o600


def test_only_its_own_key_opens_it(host, tmp_path):
    stranger = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger], check=True)
    argv = ["ssh", "-F", "none", "-i", str(stranger), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"]
    argv += ["-o", f"UserKnownHostsFile={host.known_hosts}", "-p", str(host.port), "root@127.0.0.1", "true"]
    result = subprocess.run(argv, capture_output=True, text=True)
    assert result.returncode == 255
    assert "Permission denied (publickey)" in result.stderr


def test_ubuntu_has_sudo_without_a_password(host):
    assert output(host, "id -un; sudo -n id -un", user="ubuntu").split() == ["ubuntu", "root"]


def test_it_knows_itself_by_both_names(host):
    argv = ["ssh", "-F", str(host.ssh_config), f"sandbox:{host.name}", "hostname"]
    assert subprocess.run(argv, capture_output=True, text=True).stdout == f"{host.name}\n"


def test_crashing_unit_is_restarted_and_told_in_the_journal(host):
    script = "import sys; print('going down', flush=True); raise RuntimeError('CUDA error (pretend)')"
    start_unit(
        host,
        "crash",
        "[Unit]\nStartLimitIntervalSec=30\nStartLimitBurst=3\n[Service]\nRestart=on-failure\nRestartSec=100ms\n"
        f'ExecStart=/usr/bin/python3 -c "{script}"\n',
    )
    state = when_failed(host, "crash", "NRestarts", "Result", "ExecMainStatus")
    assert (state["NRestarts"], state["Result"], state["ExecMainStatus"]) == ("3", "exit-code", "1")
    records = [json.loads(line) for line in output(host, "journalctl -u crash -o json").splitlines()]
    messages = [record["MESSAGE"] for record in records]
    assert messages.count("going down") == 3
    assert messages.count("RuntimeError: CUDA error (pretend)") == 3
    assert all("__CURSOR" in record for record in records)


def test_memory_limit_ends_in_oom_kill(host):
    if not host.oom_kill_reported:
        pytest.skip("cgroup v1 and no C compiler when the root file system was built")
    hog = "b = [bytearray(1 << 20) for _ in range(300)]"
    start_unit(host, "hog", f'[Service]\nMemoryMax=64M\nExecStart=/usr/bin/python3 -c "{hog}"\n')
    state = when_failed(host, "hog", "Result", "ExecMainStatus")
    assert (state["Result"], state["ExecMainStatus"]) == ("oom-kill", "9")
    assert "LD_PRELOAD" not in output(host, "systemd-run -q --wait --pipe env; env")


def test_this_machine_is_out_of_reach(host):
    result = ssh(host, "echo 1 > /proc/sys/vm/swappiness; date -s 2001-01-01; ip -o link | wc -l")
    assert "Read-only file system" in result.stderr
    assert "cannot set date" in result.stderr
    assert result.stdout.split()[-1] == "1"  # loopback alone


def test_console_works_without_sshd(host):
    assert sandbox.exec_inside(host, ["systemctl", "stop", "ssh"]).returncode == 0
    assert ssh(host, "true").returncode == 255
    assert sandbox.exec_inside(host, ["sh", "-c", "cat; exit 7"], input="typed").stdout == "typed"
    assert sandbox.exec_inside(host, ["sh", "-c", "exit 7"]).returncode == 7
    assert sandbox.exec_inside(host, ["id", "-un"], user="ubuntu").stdout == "ubuntu\n"
    assert sandbox.exec_inside(host, ["systemctl", "start", "ssh"]).returncode == 0
    assert output(host, "echo back") == "back"


def test_console_kills_what_takes_too_long(host):
    with pytest.raises(subprocess.TimeoutExpired):
        sandbox.exec_inside(host, ["sh", "-c", "sleep 4321; true"], timeout=0.3)
    until(lambda: sandbox.exec_inside(host, ["pgrep", "-f", "^sleep 4321"]).returncode == 1)


def test_stalled_link_is_silent_until_cleared(host, faults):
    argv = ssh_argv(host, "echo up; read line; echo $line")
    session = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert session.stdout.readline() == "up\n"
    faults.stall(host)
    late = ssh(host, "true", options=["-o", "ConnectTimeout=1"])
    assert late.returncode == 255
    assert "timed out" in late.stderr
    faults.clear(host)
    assert session.communicate("through\n", timeout=15)[0] == "through\n"  # the connection had never closed
    assert session.returncode == 0


def test_cut_link_is_a_reset(host, faults):
    with socket.create_connection((host.address, host.port), timeout=15) as connection:
        while not connection.recv(256).endswith(b"\n"):
            continue
        faults.cut(host)
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert output(host, "echo back") == "back"


def test_link_is_cut_after_so_many_bytes_and_only_once(host, faults):
    faults.cut_after(host, 500_000)
    result = ssh(host, "head -c 2000000 /dev/zero | tr '\\0' x")
    assert result.returncode == 255
    assert 0 < len(result.stdout) <= 500_000
    assert faults.cuts(host) == 1
    assert len(output(host, "head -c 2000000 /dev/zero | tr '\\0' x")) == 2_000_000


def test_refused_and_back_on_the_same_port(host, faults):
    faults.refuse(host)
    result = ssh(host, "true")
    assert result.returncode == 255
    assert "refused" in result.stderr
    faults.clear(host)
    assert output(host, "echo back") == "back"


def test_slow_link_still_carries_everything(host, faults):
    faults.delay(host, 0.02)
    faults.rate(host, 400_000)
    assert len(output(host, "head -c 100000 /dev/zero | tr '\\0' x")) == 100_000


def test_full_and_read_only_disks(host, faults):
    faults.fill(host, "/srv/small", "1m")
    assert "No space left on device" in ssh(host, "head -c 2000000 /dev/zero > /srv/small/file").stderr
    output(host, "mkdir -p /srv/fixed")
    faults.read_only(host, "/srv/fixed")
    assert "Read-only file system" in ssh(host, "touch /srv/fixed/file").stderr
    faults.clear(host)
    output(host, "touch /srv/fixed/file && test ! -e /srv/small/file")


def test_disk_survives_reboot_and_power_loss(host, faults):
    output(host, "echo kept > /srv/kept")
    first = boot_id(host)
    ssh(host, "systemctl reboot")
    second = until(lambda: boot_id(host) not in ("", first) and boot_id(host))
    assert output(host, "cat /srv/kept") == "kept"
    assert faults.power_reset(host).pid != host.pid
    third = boot_id(host)
    assert len({first, second, third}) == 3
    assert output(host, "cat /srv/kept; journalctl --list-boots -q | wc -l").split() == ["kept", "3"]
    faults.power_off(host)
    assert ssh(host, "true").returncode == 255
    assert sandbox.find(host.name).pid == 0


def test_layers_stack_over_the_root_and_ports_and_folders_are_shared(boot, tmp_path):
    below, above, shared = (tmp_path / name for name in ("below", "above,with:odd name", "shared"))
    for layer, text in ((below, "below"), (above, "above")):
        (layer / "opt/engine").mkdir(parents=True)
        (layer / "opt/engine/which").write_text(text)
    (below / "opt/engine/only-below").touch()
    shared.mkdir()
    (shared / "file").write_text("shared")
    host = boot("layered", layers=[below, above], publish=[8000], binds=[(shared, "/mnt/shared")], disk="64m")
    try:
        assert output(host, "cat /opt/engine/which /mnt/shared/file; ls /opt/engine") == (
            "aboveshared" + "only-below\nwhich"
        )
        assert "Read-only file system" in ssh(host, "touch /mnt/shared/file").stderr
        assert "No space left" in ssh(host, "head -c 80000000 /dev/zero > /root/file").stderr
        output(host, "rm /root/file; systemd-run -q python3 -m http.server 8000 --directory /opt/engine")
        curl = [sys.executable, "-c", "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read())"]
        url = f"http://{host.address}:{host.published[8000]}/which"
        assert (
            until(lambda: subprocess.run([*curl, url], capture_output=True, text=True).stdout) == "b'above'\n"
        )
    finally:
        sandbox.down("layered")
    assert (above / "opt/engine/which").read_text() == "above"


def test_two_at_once_know_nothing_of_each_other(boot):
    with ThreadPoolExecutor() as pool:
        one, two = pool.map(boot, ("one", "two"))
    connect = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))'"
    output(one, "systemd-run -q python3 -m http.server 8000")
    until(lambda: ssh(one, connect).returncode == 0)
    assert "refused" in ssh(two, connect).stderr
    assert output(one, "cat /etc/machine-id") != output(two, "cat /etc/machine-id")
    sandbox.down("one")
    until(lambda: not traces("one"))
    assert output(two, "systemctl is-system-running") == "running"
    sandbox.down("two")
    until(lambda: not traces("two"))
    sandbox.down("two")  # again: nothing to do


def test_killed_owner_leaves_nothing(boot):
    owner = subprocess.Popen(["sleep", "600"])
    boot("owned", owner=owner.pid)
    assert traces("owned")
    owner.kill()
    owner.wait()
    until(lambda: not traces("owned"))


def test_killed_supervisor_leaves_nothing(boot):
    host = boot("orphan")
    os.kill(host.supervisor.pid, signal.SIGKILL)
    until(lambda: not traces("orphan"))


def test_next_up_sweeps_when_all_were_killed(boot):
    host = boot("swept")
    for pid in processes("swept") - {host.pid}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{host.pid}").exists())
    assert host.state.exists()
    boot("unrelated")
    assert not traces("swept")
    sandbox.down("unrelated")


def test_cli_sandbox_outlives_the_command(sandbox_state):
    def ddtool(*arguments):
        argv = [sys.executable, "-m", "ddtool", "sandbox", *arguments, "--json"]
        result = subprocess.run(argv, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    booted = ddtool("up", "kept", "--bare")
    assert booted["sandbox"]["host"] == "sandbox:kept"
    assert booted["sandbox"] in ddtool("list")["sandboxes"]
    assert output(sandbox.find("kept"), "hostname") == "kept"
    assert ddtool("down", "kept")["down"] == ["kept"]
    until(lambda: not traces("kept"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("after", [0.3, 0.45, 0.6])
def test_up_ended_in_its_middle_is_no_obstacle(boot, number, after):
    """Wherever the signal strikes (the moments are only spread, not aimed), the next up works and down is clean."""
    starting = subprocess.Popen(
        [sys.executable, "-c", "from ddtool import sandbox; sandbox.up('early')"], stderr=subprocess.DEVNULL
    )
    time.sleep(after)
    starting.send_signal(number)
    starting.wait()
    assert output(boot("early"), "hostname") == "early"
    sandbox.down("early")
    until(lambda: not traces("early"))
