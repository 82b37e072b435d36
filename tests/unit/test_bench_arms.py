"""Arms: what is typed, which profile each one's server runs, and that nothing else differs."""

from __future__ import annotations

from typing import Any

import pytest
from support import mini

from ddtool.bench import arms
from ddtool.bench.arms import Arm
from ddtool.errors import UsageError
from ddtool.profile import Profile, load
from ddtool.profile.launch import flags
from ddtool.profile.validate import require_valid

WIDTHS = {
    "speculative-algorithm",
    "speculative-draft-model-path",
    "speculative-draft-attention-backend",
    "speculative-num-draft-tokens",
    "speculative-dflash-block-size",
    "speculative-ddtree-budget",
    "speculative-ddtree-topk",
}


@pytest.fixture(scope="module")
def tree() -> Profile:
    return load("k26-ddtree")


@pytest.fixture(scope="module")
def chain() -> Profile:
    return load("k26-dflash")


def of(name: str, profile: Profile) -> Profile:
    return arms.profile_of(arms.parse(name, profile), profile)


@pytest.mark.parametrize(
    "text",
    ["", "Plain", "tree", "tree:", "tree:0", "tree:8:", "tree:8:0", "tree:-1", "tree:8:8:8", "dflash", "a/b"],
)
def test_anything_else_is_refused_with_the_form(text: str, tree: Profile) -> None:
    with pytest.raises(UsageError) as caught:
        arms.parse(text, tree)
    assert "tree:BUDGET" in (caught.value.hint or "")


def test_a_tree_takes_the_profiles_topk_unless_it_has_its_own(tree: Profile, chain: Profile) -> None:
    narrow = load("k26-ddtree", ["speculative.topk=4"])
    assert arms.parse("tree:16", narrow) == Arm("tree:16", "DDTREE", 16, 4)
    assert arms.parse("tree:16:2", narrow).topk == 2
    assert arms.parse("tree:16", chain).topk == arms.TOPK


def test_default_is_what_one_wants_to_see(tree: Profile, chain: Profile) -> None:
    assert [arm.name for arm in arms.parse_all(None, tree)] == ["plain", "chain", "tree:32"]
    assert [arm.name for arm in arms.parse_all(None, chain)] == ["plain", "chain"]
    lone = tree.model_copy(update={"drafter": None, "speculative": load(str(mini.PROFILE)).speculative})
    assert [arm.name for arm in arms.parse_all(None, lone)] == ["plain"]


def test_the_same_arm_twice_is_refused_however_it_is_spelled(tree: Profile) -> None:
    for text in ("chain,chain", "tree:16,tree:16:8"):
        with pytest.raises(UsageError, match="the same"):
            arms.parse_all(text, tree)


@pytest.mark.parametrize("name", ["plain", "chain", "tree:16", "tree:64:4"])
@pytest.mark.parametrize("base", ["tree", "chain"])
def test_nothing_but_the_speculation_differs(name: str, base: str, request: pytest.FixtureRequest) -> None:
    profile: Profile = request.getfixturevalue(base)
    made = of(name, profile)
    before, after = flags(profile), flags(made)
    differ = {flag for flag in before.keys() | after.keys() if before.get(flag) != after.get(flag)}
    assert differ <= WIDTHS
    assert made.env == profile.env
    assert made.service == profile.service
    require_valid(made)


def test_the_own_arm_is_the_profile_itself(tree: Profile, chain: Profile) -> None:
    assert of("tree:32", tree) is tree
    assert of("chain", chain) is chain


def test_baselines_are_stock_sglang_and_trees_are_answered_by_the_engine(
    tree: Profile, chain: Profile
) -> None:
    assert [of(name, tree).engine.provider for name in ("plain", "chain", "tree:16")] == [
        "builtin",
        "builtin",
        "plugin",
    ]
    assert of("tree:16", chain).engine.provider == "plugin"


def test_plain_has_no_drafter_and_no_flag_of_speculation() -> None:
    profile = load("k26-ddtree", ["server_args.speculative-draft-window-size=4096"])
    made = of("plain", profile)
    assert made.drafter is None
    assert not any(name.startswith("speculative") for name in flags(made))
    said = arms.forced_differences(arms.parse_all("plain,chain", profile), profile)
    assert any("plain runs without --speculative-draft-window-size" in word for word in said)
    assert flags(of("chain", profile))["speculative-draft-window-size"] == 4096


def test_a_forks_tree_has_the_shape_of_its_own_flags_alone() -> None:
    fork: dict[str, Any] = {
        "engine.provider": "builtin",
        "server_args.speculative-dflash-enable-ddtree": "true",
        "server_args.speculative-num-draft-tokens": 33,
    }
    profile = load("k26-ddtree", [f"{name}={value}" for name, value in fork.items()])
    assert of("tree:32", profile) is profile
    with pytest.raises(UsageError, match="fork"):
        of("tree:16", profile)
    made = flags(of("chain", profile))
    assert "speculative-dflash-enable-ddtree" not in made
    assert made["speculative-num-draft-tokens"] == 8


def test_without_a_drafter_only_plain(tree: Profile) -> None:
    plain = of("plain", tree)
    with pytest.raises(UsageError, match="needs a drafter"):
        of("chain", plain)


def test_the_overlap_scheduler_is_named_unless_it_is_off_everywhere(tree: Profile) -> None:
    three = arms.parse_all(None, tree)
    assert any("overlap" in word for word in arms.forced_differences(three, tree))
    off = load("k26-ddtree", ["server_args.disable-overlap-schedule=true"])
    assert not arms.forced_differences(arms.parse_all(None, off), off)
    assert not arms.forced_differences(arms.parse_all("chain,tree:16", tree), tree)
