"""The parts of a sandbox that need neither root nor Linux's help to be right or wrong."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from pathlib import Path

import pytest

from ddtool.errors import PreflightError, UsageError
from ddtool.sandbox import cgroups, disk, hosts, records, rootfs
from ddtool.sandbox.processes import Process
from ddtool.sandbox.records import Sandbox
from ddtool.sandbox.relay import ADDRESS, Faults, Relay

HYBRID = """\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
"""


def test_hierarchies_of_a_hybrid_machine():
    here = cgroups.hierarchies(HYBRID)
    assert {name: str(where) for name, where in here.items()} == {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
        "memory": "/sys/fs/cgroup/memory",
        "systemd": "/sys/fs/cgroup/systemd",
        "": "/sys/fs/cgroup/unified",
    }
    assert cgroups.layout(here) == "hybrid"


def test_hierarchies_of_a_machine_with_cgroup2_alone():
    here = cgroups.hierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n")
    assert here == {"": Path("/sys/fs/cgroup")}
    assert cgroups.layout(here) == "unified"


def test_a_machine_without_cgroup2_is_refused():
    with pytest.raises(PreflightError, match="cgroup2") as caught:
        cgroups.layout(cgroups.hierarchies(HYBRID.replace("cgroup2", "tmpfs")))
    assert "mount -t cgroup2" in caught.value.hint


@pytest.mark.parametrize("shim", [True, False])
def test_oom_kills_of_cgroup_v1_need_the_shim(shim):
    assert cgroups.reports_oom_kills(cgroups.hierarchies(HYBRID), shim) is shim


def test_oom_kills_of_cgroup2_need_its_memory_controller(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    assert cgroups.reports_oom_kills({"": tmp_path}, shim=False)
    (tmp_path / "cgroup.controllers").write_text("cpu pids\n")
    assert not cgroups.reports_oom_kills({"": tmp_path}, shim=False)


def test_state_folders_have_cgroups_of_their_own():
    assert cgroups.parent(Path("/run/a")) != cgroups.parent(Path("/run/b"))


def test_overlay_stacks_the_last_layer_on_top_and_escapes_its_separators():
    data = disk.overlay_data(["/root", "/a:b", "/c,d"], Path("/s/upper"), Path("/s/work"))
    assert data == "lowerdir=/c\\,d:/a\\:b:/root,upperdir=/s/upper,workdir=/s/work"


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("512", 512), ("64m", 64 << 20), ("4G", 4 << 30)])
def test_sizes(text, size):
    assert hosts.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "4 g", "-1", "4gb", "1.5g"])
def test_sizes_that_are_none(text):
    with pytest.raises(UsageError, match="no size"):
        hosts.parse_size(text)


@pytest.mark.parametrize("name", ["", "-a", "a/b", "..", "A", "a" * 32])
def test_names_that_are_none(name):
    with pytest.raises(UsageError, match="cannot name"):
        hosts.up(name)


def test_apt_sources_are_this_machines_own_of_the_suite(tmp_path):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://one.example bookworm main\n"
        "deb http://two.example bookworm main contrib\n"
        "deb http://two.example trixie main\n"
        "deb-src http://two.example bookworm main\n"
    )
    (tmp_path / "sources.list.d/debian.sources").write_text(
        "Types: deb deb-src\nURIs: http://three.example\nSuites: bookworm bookworm-updates\n"
        "Components: main\nSigned-By: /usr/share/keyrings/debian.gpg\n\n"
        "Types: deb\nURIs: http://four.example\nSuites: bookworm\nComponents: main\nEnabled: no\n"
    )
    (tmp_path / "sources.list.d/disabled.list.save").write_text("deb http://five.example bookworm main\n")
    signed = "deb [signed-by=/usr/share/keyrings/debian.gpg] http://three.example"
    assert rootfs.apt_sources(tmp_path) == [
        "deb http://two.example bookworm main contrib",
        f"{signed} bookworm main",
        f"{signed} bookworm-updates main",
    ]


def test_another_distribution_has_no_sources_for_us(tmp_path):
    (tmp_path / "sources.list").write_text("deb http://one.example noble main\n")
    assert rootfs.apt_sources(tmp_path) == []


def test_addresses_are_kept_out_of_messages():
    text = "E: Failed to fetch https://user:secret@mirror.example/debian/x.deb  404"
    assert rootfs.without_addresses(text) == "E: Failed to fetch MIRROR  404"


def test_record_survives_writing_and_reading(tmp_path, monkeypatch):
    monkeypatch.setenv("DDTOOL_SANDBOX_STATE", str(tmp_path))
    (tmp_path / "one").mkdir()
    sandbox = Sandbox(
        name="one",
        address="127.0.0.1",
        port=2222,
        published={8000: 41000},
        lower=("/root", "/engine"),
        oom_kill_reported=True,
        supervisor=Process(10, 100),
        init=None,
        state=tmp_path / "one",
    )
    sandbox.save()
    assert records.load("one") == sandbox
    assert sandbox.pid == 0
    assert records.load("two") is None


def test_a_state_folder_has_one_name(tmp_path, monkeypatch):
    """Cgroups are named after it: a symbolic link to it must not make them others."""
    (tmp_path / "link").symlink_to(tmp_path / "state")
    monkeypatch.setenv("DDTOOL_SANDBOX_STATE", str(tmp_path / "link"))
    assert records.state_root() == tmp_path / "state"


def test_a_process_is_told_from_its_successor():
    child = subprocess.Popen(["sleep", "600"])
    process = Process.of(child.pid)
    assert process and process.alive()
    successor = Process(process.pid, process.started + 1)
    assert not successor.alive()
    assert successor.kill()
    assert process.alive()  # the kill of another one did not strike it
    assert process.kill()
    assert Process.of(child.pid) is None  # a zombie is no process any more
    child.wait()
    assert process.kill() and process.wait()


def test_a_lock_that_is_held_is_said(tmp_path):
    path = tmp_path / "lock"
    with records.locked(path), pytest.raises(BlockingIOError), records.locked(path, wait=False):
        pytest.fail("held twice")
    with records.locked(path, wait=False):
        pass


def test_cut_after_counts_exactly_and_strikes_once():
    faults = Faults(cut_after=100)
    assert faults.admit(60) == (60, False)
    assert faults.admit(60) == (40, True)
    assert faults.admit(60) == (60, False)
    assert faults.cuts == 1


def test_relay_cuts_at_the_byte_and_then_carries_all():
    async def received(relay):
        reader, writer = await asyncio.open_connection(ADDRESS, relay.ports[port])
        data = b""
        try:
            while chunk := await reader.read(65536):
                data += chunk
        except ConnectionResetError:
            return data, "reset"
        finally:
            writer.close()
        return data, "closed"

    async def scenario():
        relay = Relay(socket.socket)
        relay.publish(port)
        relay.faults.cut_after = 1000
        cut = await received(relay)
        whole = await received(relay)
        relay.refuse(True)
        with pytest.raises(ConnectionRefusedError):
            await received(relay)
        relay.clear()
        assert await received(relay) == whole
        relay.close()
        return cut, whole

    async def serve():
        async def send(reader, writer):
            writer.write(content)
            writer.close()

        server = await asyncio.start_server(send, ADDRESS, 0)
        nonlocal port
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await scenario()

    port = 0
    content = os.urandom(300_000)
    (cut, cut_how), (whole, whole_how) = asyncio.run(serve())
    assert cut_how == "reset" and content.startswith(cut) and len(cut) <= 1000
    assert whole_how == "closed" and whole == content
