"""Which host and which profile: options, environment, the operator's own files, in that order."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ddtool.errors import UsageError
from ddtool.profile import bind


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bind.platformdirs, "user_config_path", lambda name: tmp_path / "config" / name)
    monkeypatch.setattr(bind.platformdirs, "user_state_path", lambda name: tmp_path / "state" / name)
    return tmp_path


def test_an_unbound_profile_names_the_command() -> None:
    with pytest.raises(UsageError, match="no host") as caught:
        bind.host_for("k26-ddtree", None, {})
    assert caught.value.exit_code == 2
    assert "ddtool profile bind k26-ddtree HOST" in (caught.value.hint or "")


def test_option_then_environment_then_binding() -> None:
    bind.bind("k26-ddtree", "gpu1")
    environ = {"DDTOOL_HOST": "gpu2"}
    assert bind.host_for("k26-ddtree", None, {}) == "gpu1"
    assert bind.host_for("k26-ddtree", None, environ) == "gpu2"
    assert bind.host_for("k26-ddtree", "gpu3", environ) == "gpu3"


def test_the_demo_goes_to_its_sandbox_unless_bound_elsewhere() -> None:
    assert bind.host_for("demo", None, {}) == "sandbox:demo"
    bind.bind("demo", "root@vm")
    assert bind.host_for("demo", None, {}) == "root@vm"


@pytest.mark.parametrize("host", ["", "-oProxyCommand=x", "a b", "a\nb"])
def test_a_host_that_ssh_would_misread_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="not a host"):
        bind.bind("demo", host)
    assert not bind.bindings_file().exists()


def test_files_are_private_and_leave_nothing_behind() -> None:
    bind.bind("a", "host-a")
    bind.bind("b", "host-b")
    bind.set_current("a")
    for path in (bind.bindings_file(), bind.current_file()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert bind.bindings() == {"demo": "sandbox:demo", "a": "host-a", "b": "host-b"}


def test_a_broken_file_is_named_and_kept() -> None:
    bind.bindings_file().parent.mkdir(parents=True)
    bind.bindings_file().write_text("- a\n- b\n")
    with pytest.raises(UsageError, match=r"hosts\.yaml"):
        bind.bind("a", "host-a")
    assert bind.bindings_file().read_text() == "- a\n- b\n"


def test_the_current_profile() -> None:
    with pytest.raises(UsageError, match="none is current") as caught:
        bind.current(None, {})
    assert "-p PROFILE" in (caught.value.hint or "")
    bind.set_current("demo")
    assert bind.current(None, {}) == "demo"
    assert bind.current(None, {"DDTOOL_PROFILE": "k26-ddtree"}) == "k26-ddtree"
    assert bind.current("k26-dflash", {"DDTOOL_PROFILE": "k26-ddtree"}) == "k26-dflash"
