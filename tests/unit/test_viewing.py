"""Which service somebody looks at, before any host is asked."""

from __future__ import annotations

import json

import pytest

from ddtool.deploy.viewing import Viewing, the_only_one, unit_name
from ddtool.errors import ProfileError, UsageError
from ddtool.profile import load


@pytest.mark.parametrize("name", ["sglang-k26", "sglang@k26", "_x", "a.b:c", "dev-sda\\x2d1"])
def test_names_of_units(name: str) -> None:
    assert unit_name(name) == unit_name(f"{name}.service") == name


@pytest.mark.parametrize(
    "name", ["", "-rf", "--all", "../../etc", "a/b", "a b", "a\nb", ".service", "$(id)", "a;b"]
)
def test_what_is_no_name_reaches_no_host(name: str) -> None:
    with pytest.raises(UsageError, match="not the name of a unit") as caught:
        Viewing("name.invalid", name or " ", None)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["../../etc", "-rf", "a b", "%n", "$HOME", "a.service", "a\nb"])
def test_nor_does_it_come_out_of_a_profile(name: str) -> None:
    with pytest.raises(ProfileError):
        load("k26-ddtree", [f"service.unit={json.dumps(name)}"])


def test_the_only_one_or_a_choice() -> None:
    one = {"unit": "a", "active": "active", "profile": "p"}
    assert the_only_one("h", [one]) == "a"
    with pytest.raises(UsageError, match="2 services") as caught:
        the_only_one("h", [one, {**one, "unit": "b"}])
    assert "--unit a" in (caught.value.hint or "") and "b: active" in (caught.value.why or "")
    with pytest.raises(UsageError, match="no service"):
        the_only_one("h", [])
