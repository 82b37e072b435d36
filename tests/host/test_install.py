"""Environments that ddtool makes, on a host that reaches nothing but the operator: a wheelhouse, sent and installed.

The service is tests/support/mini as a wheel with a dependency; pip itself comes with the wheelhouse, too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from support import doctored, mini, wheels
from support.cli import data, ddtool, ok
from support.remote import output
from support.tree import differences, snapshot, without_times

from ddtool import profile
from ddtool.deploy import uploads, wheelhouse
from ddtool.deploy.deployment import Deployment
from ddtool.errors import ConnectionLost, DdtoolError
from ddtool.sandbox import Sandbox

pytestmark = [pytest.mark.host, pytest.mark.timeout(240)]

UNIT = "sglang-mini"
BASE = "/opt/mini/venv"
BALLAST = 3_000_000


@pytest.fixture(scope="module")
def place(host: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The host has its models and no environment. The folder has profiles `one` and `two`, each with its wheelhouse."""
    mini.install_models(host)
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDTOOL_HOST", f"sandbox:{host.name}")
        for name, words in (("one", "1.0"), ("two", "1.1")):
            links = wheels.mini_service(folder / f"links-{name}", words=words, ballast=BALLAST)
            wheels.add_pip(links)
            given = yaml.safe_load(mini.PROFILE.read_text())
            given["engine"].update(install="managed", wheelhouse=str(folder / f"house-{name}"))
            given["health"].update(concurrent=0, max_tokens=6)
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(given))
            ok("wheelhouse", "build", str(folder / f"{name}.yaml"), env=wheels.only_from(links))
        yield folder


@pytest.fixture(scope="module")
def empty(host: Sandbox, place: Path) -> dict[str, list[object]]:
    return snapshot(host)


@contextmanager
def connected(place: Path, host: Sandbox, name: str = "one") -> Iterator[Deployment]:
    with Deployment(profile.load(str(place / f"{name}.yaml")), f"sandbox:{host.name}") as deployment:
        yield deployment


def in_force(host: Sandbox) -> str:
    return output(host, f"readlink {BASE}")


def environments(host: Sandbox) -> list[str]:
    return output(host, f"ls -d {BASE}-* 2>/dev/null || true").split()


def runs_from(host: Sandbox) -> str:
    return (
        output(host, f"systemctl show {UNIT} -p ExecStart --value").partition("argv[]=")[2].split("/bin/")[0]
    )


def test_the_wheelhouse_is_for_this_host(host: Sandbox, place: Path) -> None:
    house = wheelhouse.read(place / "house-one")
    assert house.target.minor == output(
        host, "python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'"
    )
    assert house.target.glibc == output(host, "getconf GNU_LIBC_VERSION").split()[1]


def test_doctor_and_a_dry_run_touch_nothing(
    host: Sandbox, place: Path, empty: dict[str, list[object]]
) -> None:
    checks = {check["name"]: check for check in data("doctor", str(place / "one.yaml"))["checks"]}
    assert checks["install"]["state"] == checks["python"]["state"] == "ok"
    shown = ok("deploy", str(place / "one.yaml"), "--dry-run")
    assert "3 wheels on the host" in shown and f"{BASE}-" in shown
    assert differences(empty, snapshot(host)) == []


def test_a_wrong_hash_is_refused_before_anything_is_touched(
    host: Sandbox, place: Path, empty: dict[str, list[object]]
) -> None:
    (wheel,) = (place / "house-one").glob("mini_words-*.whl")
    right = wheel.read_bytes()
    wheel.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    done = ddtool("deploy", str(place / "one.yaml"), "--yes")
    wheel.write_bytes(right)
    assert done.returncode == 8 and wheel.name in done.stderr
    assert differences(empty, snapshot(host)) == []


def test_an_upload_that_was_given_up_goes_on_where_it_stopped(
    host: Sandbox, place: Path, faults: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "PAUSE_S", 0.05)
    house = wheelhouse.read(place / "house-one")
    total = sum(wheel.bytes for wheel in house.wheels)

    def lose_the_host(event: dict[str, Any]) -> None:
        if event["event"] == "sending" and event["done"] < total:
            faults.refuse(host)

    monkeypatch.setattr(uploads, "TOLD_S", 0.0)
    with connected(place, host) as deployment:
        first = uploads.Upload(deployment.agent, deployment.reconnect, lose_the_host)
        with pytest.raises(ConnectionLost, match="what has arrived stays there"):
            first.send(house.folder, house.wheels)
    faults.clear(host)
    with connected(place, host) as deployment:
        held = sum(deployment.held.values())
        again = uploads.Upload(deployment.agent, deployment.reconnect, lambda event: None)
        again.send(house.folder, house.wheels)
        assert sum(deployment.agent.call("wheels.held", shas=list(deployment.held)).values()) <= total
    assert 0 < held < total and again.sent == total - held
    output(host, "rm -r /var/lib/ddtool/wheels")


def test_a_cut_link_is_taken_up_again_by_the_same_command(
    host: Sandbox, place: Path, faults: ModuleType
) -> None:
    house = wheelhouse.read(place / "house-one")
    total = sum(wheel.bytes for wheel in house.wheels)
    events: list[dict[str, Any]] = []

    def cut_again(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "link-lost" and len(events) < 20:
            faults.cut_after(host, 1_500_000)

    with connected(place, host) as deployment:
        faults.cut_after(host, 1_500_000)
        upload = uploads.Upload(deployment.agent, deployment.reconnect, cut_again)
        upload.send(house.folder, house.wheels)
        assert upload.agent.call("wheels.held", shas=[w.sha256 for w in house.wheels]) == {
            wheel.sha256: wheel.bytes for wheel in house.wheels
        }
    cuts = [event for event in events if event["event"] == "link-lost"]
    assert len(cuts) >= 2 and upload.sent <= total


def test_deploy_makes_the_environment_and_runs_from_it(host: Sandbox, place: Path) -> None:
    with connected(place, host) as deployment:
        assert deployment.plan_deploy().uploads == ()  # the tests before this one have sent them
    ok("deploy", str(place / "one.yaml"), "--yes")
    assert data("status")["health"]["ok"]
    assert runs_from(host) == in_force(host) == environments(host)[0]
    assert output(host, f"{BASE}/bin/python -c 'import mini_words; print(mini_words.VERSION)'") == "1.0"
    assert output(host, "ls /var/lib/ddtool").split().count("wheels") == 0  # installed: they are in the way
    told = data("explain")
    assert "wheel-changed" not in [told["reason"], *(item["reason"] for item in told["also"])]
    wheel = next(
        check for check in data("doctor", str(place / "one.yaml"))["checks"] if check["name"] == "wheel"
    )
    assert wheel["state"] == "ok"


def test_a_second_deploy_is_none(host: Sandbox, place: Path) -> None:
    before = snapshot(host)
    result = data("deploy", str(place / "one.yaml"), "--yes")
    assert result["changed"] is False and result["round_trips"] <= 3
    assert differences(before, snapshot(host)) == []


def test_an_executor_killed_while_it_installs_is_undone_and_the_service_runs_on(
    host: Sandbox, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, before = output(host, f"systemctl show {UNIT} -p InvocationID --value"), environments(host)
    monkeypatch.setattr("ddtool.transport.agent.agent_zipapp", doctored.agent)
    doctored.arm(host, "txn", 2, "_run")  # 1: making the bare environment, 2: pip
    with connected(place, host, "two") as deployment:
        plan = deployment.plan_deploy()
        with pytest.raises(DdtoolError, match="was killed"):
            deployment.apply(plan, lambda event: None)
    hit = doctored.fired(host)
    assert hit and "Popen" in hit["act"], hit
    assert len(environments(host)) == 2
    with connected(place, host, "two") as deployment:
        deployment.settle(lambda event: None)
        again = deployment.plan_deploy()
    assert environments(host) == before
    assert again.uploads == ()  # the wheels have not to be sent again
    assert output(host, "ls /var/lib/ddtool/environments").count(".json") == 1
    assert output(host, f"systemctl show {UNIT} -p InvocationID --value") == run
    assert in_force(host) == before[0]


def test_another_set_is_another_environment_and_a_rollback_finds_the_former(
    host: Sandbox, place: Path
) -> None:
    former = in_force(host)
    ok("deploy", str(place / "two.yaml"), "--yes")
    assert in_force(host) == runs_from(host) != former and len(environments(host)) == 2
    ok("rollback", "-p", str(place / "two.yaml"), "--yes")
    assert in_force(host) == runs_from(host) == former
    assert data("status", "-p", str(place / "two.yaml"))["health"]["ok"]


def test_the_same_set_from_an_index_that_the_host_reaches(host: Sandbox, place: Path) -> None:
    """With pip of the host's own Python. Other wheels than those pinned would have other hashes."""
    shop = "/opt/mini/simple"
    for wheel in wheels.mini_service(place / "links-index", words="1.2").iterdir():
        package = f"{shop}/{wheel.name.split('-')[0].replace('_', '-')}"
        content = base64.b64encode(wheel.read_bytes()).decode()
        output(host, f"mkdir -p {package} && base64 -d > {package}/{wheel.name}", input=content)
    output(host, f"systemd-run -q --unit shop python3 -m http.server 8900 -b 127.0.0.1 -d {shop}")
    pins = [wheelhouse.read_wheel(path).pin for path in (place / "links-index").iterdir()]
    (place / "pins.txt").write_text("\n".join(pins))
    settings = ["engine.wheelhouse=null", f"engine.requirements={place / 'pins.txt'}"]
    settings.append("engine.index=http://127.0.0.1:8900/")
    sets = [word for setting in settings for word in ("--set", setting)]
    ok("deploy", str(place / "one.yaml"), *sets, "--yes")
    assert output(host, f"{BASE}/bin/python -c 'import mini_words; print(mini_words.VERSION)'") == "1.2"
    output(host, f"systemctl stop shop; rm -r {shop}")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("within", ["make", "point"])
def test_killed_at_every_act(
    host: Sandbox, place: Path, monkeypatch: pytest.MonkeyPatch, within: str
) -> None:
    """Of making an environment, and of giving it its name: always undone, and the service never notices."""
    ok("deploy", str(place / "one.yaml"), "--yes")
    run, former = output(host, f"systemctl show {UNIT} -p InvocationID --value"), in_force(host)
    before = environments(host)
    monkeypatch.setattr("ddtool.transport.agent.agent_zipapp", doctored.agent)
    hits = 0
    while True:
        doctored.arm(host, "txn", hits + 1, within)
        with connected(place, host, "two") as deployment:
            plan = deployment.plan_deploy()
            try:
                deployment.apply(plan, lambda event: None)
            except DdtoolError as error:
                assert "was killed" in str(error)
        hit = doctored.fired(host)
        if hit is None:
            break
        hits += 1
        with connected(place, host, "one") as deployment:
            deployment.settle(lambda event: None)
            assert deployment.plan_deploy().nothing_to_do, hit
        assert environments(host) == before and in_force(host) == former, hit
        assert output(host, f"systemctl show {UNIT} -p InvocationID --value") == run, hit
        assert (
            output(host, "ls -A /opt/mini /var/lib/ddtool/environments | grep -c '^.ddtool' || true") == "0"
        ), hit
    doctored.disarm(host)
    print(f"{hits} kills within {within}")
    assert hits > (20 if within == "make" else 2)


def test_remove_takes_everything_away(host: Sandbox, place: Path, empty: dict[str, list[object]]) -> None:
    ok("remove", "-p", str(place / "one.yaml"), "--yes")
    left = differences(without_times(empty), without_times(snapshot(host)))
    assert [path for path in left if path.startswith(("/opt", "/var/lib/ddtool", "/etc"))] == []
