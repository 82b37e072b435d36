"""Wheelhouses on the operator's machine: what is collected, what is pinned, and what a host could not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import mini, wheels
from support.cli import data, ddtool, ok

from ddtool.deploy import install_checks, installs, preflight, requirements, wheel_checks, wheelhouse
from ddtool.deploy.offline import assumed_facts
from ddtool.deploy.plan import Plan, plan_deploy
from ddtool.deploy.release import build_release
from ddtool.deploy.wheelhouse import Target
from ddtool.errors import PreflightError, UsageError, VerificationFailed
from ddtool.profile import Profile, load

HOST = Target("3.11.2", "x86_64", "2.36")
PYTHON = {
    "path": "/usr/bin/python3",
    "version": "3.11.2",
    "implementation": "cpython",
    "machine": "x86_64",
    "glibc": "2.36",
    "venv": True,
    "ensurepip": True,
}


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("links")
    wheels.add_pip(folder)
    return wheels.mini_service(folder)


@pytest.fixture(scope="module")
def facts_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `ddtool doctor --json` prints it."""
    facts = {"schema": "ddtool.facts/1", "host": {}, "venv": {"exists": False}, "install": {"python": PYTHON}}
    path = tmp_path_factory.mktemp("facts") / "facts.json"
    path.write_text(json.dumps({"schema": "ddtool.doctor/1", "facts": facts}))
    return path


@pytest.fixture(scope="module")
def house(links: Path, facts_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("house")
    build = ["wheelhouse", "build", str(mini.PROFILE), "--for", str(facts_file), "--out", str(folder)]
    ok(*build, env=wheels.only_from(links))
    return folder


def managed(folder: Path, *more: str) -> Profile:
    return load(str(mini.PROFILE), ["engine.install=managed", f"engine.wheelhouse={folder}", *more])


def about(profile: Profile, **changes: Any) -> dict[str, Any]:
    """A host's facts as far as the checks of an installation look."""
    want = installs.wanted(profile)
    assert want
    install = {
        "python": PYTHON,
        "base": want.base,
        "base_kind": "absent",
        "base_target": None,
        "path": want.path,
        "incomplete": "not made yet",
        "others_may_write": None,
        "units": [],
        "free_bytes": 10 << 30,
        "state_free_bytes": 10 << 30,
        "one_disk": True,
        **changes,
    }
    return {"install": install, "gpus": [{"driver": "580.65.06"}]}


def failed(profile: Profile, **changes: Any) -> list[preflight.Check]:
    want = installs.wanted(profile)
    assert want
    return [
        check for check in install_checks.checks(want, about(profile, **changes), {}) if check.state == "fail"
    ]


# Collecting


def test_it_holds_what_the_release_needs_and_pip(house: Path) -> None:
    found = data("wheelhouse", "show", str(house))
    assert {wheel["name"] for wheel in found["wheels"]} == {"sglang", "mini-words", "pip"}
    assert found["target"] == {"python": "3.11.2", "machine": "x86_64", "glibc": "2.36"}
    pins = (house / "requirements.txt").read_text().splitlines()
    assert [pin.split("==")[0] for pin in pins] == ["mini-words", "sglang"]  # pip only installs the others
    assert requirements.pinned(str(house / "requirements.txt")) == pins


def test_building_again_is_the_same_and_drops_what_is_no_longer_wanted(
    house: Path, links: Path, facts_file: Path
) -> None:
    before = (house / "wheelhouse.json").read_text()
    wheels.build(house, "stale", "1", {})
    build = ["wheelhouse", "build", str(mini.PROFILE), "--for", str(facts_file), "--out", str(house)]
    ok(*build, env=wheels.only_from(links))
    assert (house / "wheelhouse.json").read_text() == before
    assert not list(house.glob("stale*")) and not list(house.glob(".*"))


def test_what_has_no_wheel_for_that_host_is_named_and_nothing_is_left(
    tmp_path: Path, facts_file: Path, links: Path
) -> None:
    wheels.build(tmp_path / "links", "too-new", "1", {}, tag="py3-none-manylinux_2_39_x86_64")
    (tmp_path / "wanted.txt").write_text("too-new\n")
    options = ["--for", str(facts_file), "--out", str(tmp_path / "out"), "-r", str(tmp_path / "wanted.txt")]
    env = wheels.only_from(tmp_path / "links")
    done = ddtool("wheelhouse", "build", str(mini.PROFILE), *options, env=env)
    assert done.returncode == 4
    assert "no wheel of too-new for Python 3.11, x86_64, glibc 2.36" in done.stderr
    assert not list((tmp_path / "out").iterdir())


def test_markers_count_for_the_host_and_not_for_this_python(tmp_path: Path, facts_file: Path) -> None:
    """pip evaluates them for the Python that runs it: what it leaves out is asked for."""
    links = tmp_path / "links"
    wheels.add_pip(links)
    marked = [
        'for-old; python_version < "3.11"',
        'for-new; python_version >= "3.11"',
        'arm; platform_machine != "x86_64"',
    ]
    wheels.build(links, "sglang", mini.VERSION, {}, requires=marked)
    for name in ("for-old", "for-new"):
        wheels.build(links, name, "1", {})
    house = wheelhouse.Wheelhouse(links, HOST, (f"sglang=={mini.VERSION}",), "", ())
    collected = [wheelhouse.read_wheel(path) for path in links.glob("*.whl")]
    without = [wheel for wheel in collected if wheel.name == "sglang"]
    assert wheel_checks.unmet(without, HOST, house.requested) == ["for-new"]
    old = Target("3.10.4", "aarch64", "2.36")
    assert wheel_checks.unmet(without, old, house.requested) == ["arm", "for-old"]
    assert wheel_checks.unmet(collected, HOST, ["sglang", "mini-words>2"]) == ["mini-words>2"]


def test_a_changed_byte_is_found(house: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in house.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert ddtool("wheelhouse", "verify", str(copy)).returncode == 0
    (wheel,) = copy.glob("mini_words-*.whl")
    content = bytearray(wheel.read_bytes())
    content[40] ^= 1
    wheel.write_bytes(content)
    done = ddtool("wheelhouse", "verify", str(copy))
    assert done.returncode == 8 and wheel.name in done.stderr
    damaged = wheelhouse.read(copy)
    with pytest.raises(VerificationFailed, match="is not whole"):
        damaged.require_whole(damaged.wheels)


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "ddtool.wheelhouse/9"}'])
def test_a_folder_that_is_no_wheelhouse(tmp_path: Path, text: str) -> None:
    (tmp_path / "wheelhouse.json").write_text(text)
    with pytest.raises(UsageError, match="wheelhouse"):
        wheelhouse.read(tmp_path)


@pytest.mark.parametrize(
    "line", ["a", "a==1", "a==1.* --hash=sha256:" + "0" * 64, "-r other.txt", "a @ https://x/a.whl"]
)
def test_a_set_for_an_index_is_pinned_by_hash(tmp_path: Path, line: str) -> None:
    (tmp_path / "pins.txt").write_text(f"# the set\n{line}\n")
    with pytest.raises(UsageError):
        requirements.pinned(str(tmp_path / "pins.txt"))


def test_a_pinned_set_is_read_as_pip_tools_write_it(tmp_path: Path) -> None:
    text = "a==1 \\\n    --hash=sha256:{0} \\\n    --hash=sha256:{1}  # via b\nb==2+cpu --hash=sha256:{0}\n"
    (tmp_path / "pins.txt").write_text(text.format("0" * 64, "1" * 64))
    one, two = requirements.pinned(str(tmp_path / "pins.txt"))
    assert one.count("--hash=sha256:") == 2 and "via" not in one
    assert requirements.wanted(str(tmp_path / "pins.txt")) == ["a==1", "b==2+cpu"] and two.startswith(
        "b==2+cpu"
    )


# What a host cannot run


def wheel_named(tmp_path: Path, name: str = "x", version: str = "1", **options: Any) -> wheelhouse.Wheel:
    return wheelhouse.read_wheel(wheels.build(tmp_path, name, version, {}, **options))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tag": "cp311-cp311-manylinux_2_34_x86_64"}, None),
        ({"tag": "cp310-abi3-manylinux2014_x86_64"}, None),
        ({"tag": "py2.py3-none-any"}, None),
        ({"tag": "cp312-cp312-manylinux_2_34_x86_64"}, "is made for cp312; the host's Python is 3.11"),
        ({"tag": "cp311-cp311-manylinux_2_38_x86_64"}, "needs glibc 2.38; the host has 2.36"),
        ({"tag": "cp311-cp311-manylinux_2_28_aarch64"}, "is made for manylinux_2_28_aarch64"),
        ({"tag": "cp311-cp311-musllinux_1_2_x86_64"}, "is made for musllinux_1_2_x86_64"),
        ({"requires_python": ">=3.12"}, "needs Python >=3.12; the host's is 3.11.2"),
        ({"requires_python": ">=3.9,<3.14"}, None),
    ],
)
def test_a_wheel_says_what_the_host_has_not(
    tmp_path: Path, options: dict[str, Any], words: str | None
) -> None:
    wheel = wheel_named(tmp_path, **options)
    found = list(wheel_checks.unfit([wheel], HOST))
    assert (found == []) if words is None else (len(found) == 1 and f"{wheel.file} {words}" in found[0])


@pytest.mark.parametrize(
    ("version", "driver", "fits"),
    [
        ("12.8.90", "525.60.13", True),
        ("12.8.90", "470.82.01", False),
        ("13.0.48", "575.51.03", False),
        ("13.0.48", "580.65.06", True),
        ("13.0.48", None, True),
    ],
)
def test_a_driver_too_old_for_the_cuda_of_the_wheels(
    tmp_path: Path, version: str, driver: str | None, fits: bool
) -> None:
    wheel = wheel_named(tmp_path, f"nvidia-cuda-runtime-cu{version[:2]}", version)
    found = wheel_checks.driver_problem([wheel], driver)
    assert (found is None) if fits else (found is not None and wheel.file in found and str(driver) in found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        (
            {"python": {"error": "/usr/bin/python3 does not run", "others": ["/usr/bin/python3.12"]}},
            "python3.12",
        ),
        ({"python": {**PYTHON, "version": "3.9.2"}}, "needs Python >=3.10"),
        ({"python": {**PYTHON, "venv": False}}, "no module venv"),
        ({"python": {**PYTHON, "implementation": "pypy"}}, "pypy"),
        ({"python": {**PYTHON, "ensurepip": False}}, None),  # pip is among the wheels
        ({"free_bytes": 50 << 20}, "the largest is"),
        ({"base_kind": "other"}, "ddtool did not make it"),
        ({"others_may_write": {"folder": "/tmp", "anyone": True}}, "anyone may write in /tmp"),
        ({"others_may_write": {"folder": "/data", "anyone": False}}, None),
        (
            {"units": ["other"], "base_target": "/opt/mini/venv-0"},
            "other runs from what /opt/mini/venv names",
        ),
    ],
)
def test_what_stands_in_the_way_of_an_environment(
    house: Path, changes: dict[str, Any], words: str | None
) -> None:
    found = failed(managed(house), **changes)
    assert (found == []) if words is None else any(words in check.detail for check in found), found


def test_an_index_needs_pip_on_the_host(house: Path) -> None:
    given = [f"engine.requirements={house / 'requirements.txt'}", "engine.index=default"]
    profile = load(str(mini.PROFILE), ["engine.install=managed", *given])
    assert failed(profile) == []
    (check,) = failed(profile, python={**PYTHON, "ensurepip": False})
    assert "no module ensurepip" in check.detail and check.hint and "python3.11-venv" in check.hint


@pytest.mark.parametrize(
    "settings",
    [
        ["engine.install=managed"],
        ["engine.install=managed", "engine.index=default"],
        ["engine.install=managed", "engine.wheelhouse=a", "engine.index=default", "engine.requirements=b"],
        ["engine.index=https://user:secret@mirror/simple"],
        ["engine.index=mirror"],
    ],
)
def test_a_source_is_needed_and_only_one(settings: list[str]) -> None:
    with pytest.raises(UsageError):
        load(str(mini.PROFILE), settings)


# Which environment is meant


def test_the_set_and_the_python_name_the_environment(house: Path) -> None:
    one = installs.wanted(managed(house))
    other = installs.wanted(managed(house, "engine.python=/usr/bin/python3.11"))
    assert one and other and one.path != other.path
    assert one.path.startswith("/opt/mini/venv-") and one.base == "/opt/mini/venv"
    index = [
        "engine.install=managed",
        f"engine.requirements={house / 'requirements.txt'}",
        "engine.index=default",
    ]
    same = installs.wanted(load(str(mini.PROFILE), index))
    assert same and same.path == one.path  # where the bytes come from is no matter


def test_a_set_of_another_release_is_refused(house: Path) -> None:
    with pytest.raises(UsageError, match=r"is for sglang 0\.5\.13\.post1; .* has 0\.5\.12\.post1"):
        installs.wanted(managed(house, "engine.release=0.5.13.post1"))


def test_what_the_wheel_answers_is_known_before_it_is_installed(house: Path) -> None:
    """A fork's own DDTREE would win over the plugin's without a word."""
    profile = managed(house, "engine.provider=plugin")
    facts = installs.for_deploy(about(profile), installs.wanted(profile))
    assert "DFLASH" in facts["venv"]["algorithms"]
    (check,) = preflight.provider(profile, facts)
    assert check.state == "fail" and "built in" in check.detail


def test_verbs_that_only_look_need_no_wheelhouse(tmp_path: Path) -> None:
    profile = managed(tmp_path / "elsewhere")
    asked = installs.asked_of_host(profile)
    assert asked and asked["path"] is None
    with pytest.raises(UsageError):
        installs.wanted(profile)


def test_an_experiment_does_not_run_in_another_environment(house: Path) -> None:
    profile = managed(house)
    want, facts = installs.wanted(profile), about(profile)
    with pytest.raises(PreflightError, match="not in force"):
        installs.require_in_force(want, facts)


# Plans


def planned(profile: Profile, held: dict[str, int], **changes: Any) -> Plan:
    want = installs.wanted(profile)
    assert want
    target = profile.with_environment(want.path)
    facts = {**assumed_facts(profile), **about(profile, **changes)}
    release = installs.in_release(build_release(target, {}, "salt", want.identity), want)
    plan = plan_deploy(target, release, facts, state="/var/lib/ddtool", salt="salt", now_unix=1.0)
    return installs.in_plan(plan, want, facts, held)


def test_the_environment_is_made_and_named_before_the_service_stops(house: Path) -> None:
    plan = planned(managed(house), {})
    assert [step["step"] for step in plan.steps][:4] == ["install", "link", "release", "stop"]
    assert {wheel.name for wheel in plan.uploads} == {"sglang", "mini-words", "pip"}
    install, link = plan.steps[:2]
    assert install["installer"].startswith("pip-") and len(install["requirements"]) == 2
    release = next(step for step in plan.steps if step["step"] == "release")["meta"]
    assert link["target"] == install["path"] == release["venv"]
    assert release["argv"][0] == f"{install['path']}/bin/python"
    assert release["install"]["base"] == link["base"] == "/opt/mini/venv"


def test_only_what_the_host_lacks_is_sent(house: Path) -> None:
    wheels_of = {wheel.name: wheel for wheel in wheelhouse.read(house).wheels}
    words, pip = wheels_of["mini-words"], wheels_of["pip"]
    plan = planned(managed(house), {words.sha256: words.bytes, pip.sha256: pip.bytes - 1})
    assert {wheel.name for wheel in plan.uploads} == {"sglang", "pip"}


def test_an_environment_that_is_there_is_only_named(house: Path) -> None:
    profile = managed(house)
    want = installs.wanted(profile)
    assert want
    plan = planned(profile, {}, incomplete=None, base_target="/opt/mini/venv-0")
    assert [step["step"] for step in plan.steps][:2] == ["link", "release"] and plan.uploads == ()
    same = planned(profile, {}, incomplete=None, base_target=want.path)
    assert [step["step"] for step in same.steps][:1] == ["release"]
