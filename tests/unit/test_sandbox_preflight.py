"""Every reason that a machine cannot boot a sandbox is told with its ways out, and exit status 4."""

from __future__ import annotations

import shutil
import sys

import pytest

from ddtool.errors import PreflightError
from ddtool.sandbox import cgroups, preflight


@pytest.fixture(autouse=True)
def capable_machine(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(preflight.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(preflight.os, "geteuid", lambda: 0)
    monkeypatch.setattr(preflight, "_has_capability", lambda number: True)
    monkeypatch.setattr(preflight, "_has_overlay", lambda: True)
    monkeypatch.setattr(cgroups, "hierarchies", lambda: {"": "/sys/fs/cgroup"})
    monkeypatch.setattr(shutil, "which", lambda tool: f"/usr/bin/{tool}")


def refusal():
    with pytest.raises(PreflightError) as caught:
        preflight.check()
    assert caught.value.exit_code == 4
    return caught.value


def test_a_capable_machine_passes():
    preflight.check()


@pytest.mark.parametrize(
    ("module", "name", "value", "message"),
    [
        (sys, "platform", "darwin", "needs Linux"),
        (preflight.platform, "machine", lambda: "riscv64", "processor"),
        (preflight.os, "geteuid", lambda: 1000, "needs root"),
        (preflight, "_has_capability", lambda number: False, "CAP_SYS_ADMIN"),
        (preflight, "_has_overlay", lambda: False, "overlayfs"),
    ],
)
def test_every_refusal_names_the_ways_out(monkeypatch, module, name, value, message):
    monkeypatch.setattr(module, name, value)
    error = refusal()
    assert message in error.message
    for way in ("sudo", "--privileged", "--host", "Debian 12"):
        assert way in error.hint


def test_missing_tools_are_named_with_their_packages(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    error = refusal()
    assert error.message == "missing on this machine: ssh-keygen, nsenter"
    assert error.hint == "apt-get install -y --no-install-recommends openssh-client util-linux"
    with pytest.raises(PreflightError) as caught:
        preflight.need_tools("mmdebstrap")
    assert caught.value.hint == "apt-get install -y --no-install-recommends mmdebstrap"
