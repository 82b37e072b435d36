"""Any subset of the shipped patches composes, whatever the order, or is refused with the names of two that collide."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import venvs

from ddtool.agent import compose_script
from ddtool.agent.compose import job_of
from ddtool.diagnostics import definition

pytestmark = pytest.mark.patches

PATCHES = {patch.name: patch.to_json() for patch in definition.load_all()}
MAIN = ("0.5.12.post1", "0.5.17")
RELEASES = [
    release if release in MAIN else pytest.param(release, marks=pytest.mark.slow)
    for release in sorted({release for patch in definition.load_all() for release in patch.releases})
]
# Pairs that edit the same lines: (release, one, other). Everything else goes together.
COLLIDING: set[tuple[str, str, str]] = set()
Files = dict[str, bytes]


class Release:
    """The files of one release that patches edit, and what a set of patches makes of them."""

    def __init__(self, release: str, site: Path) -> None:
        self.name = release
        self.site = site
        self.patches = sorted(patch.name for patch in definition.load_all() if release in patch.releases)
        self.colliding = {frozenset(pair) for where, *pair in COLLIDING if where == release}
        self.lines_of = cache(self._lines_of)

    def files(self, names: list[str]) -> Files:
        targets = [target for name in names for target in PATCHES[name]["targets"]]
        wanted = sorted({target["file"] for target in targets if self.name in target["releases"]})
        return {file: (self.site / file).read_bytes() for file in wanted}

    def composed(self, names: list[str]) -> Files | str:
        """The patched files, or the words of the refusal."""
        clean = self.files(names)
        jobs = [
            compose_script.Job(
                file, content, job_of(file, content, [PATCHES[name] for name in names])["patches"]
            )
            for file, content in clean.items()
        ]
        try:
            made = compose_script.compose(jobs, self.name)
        except compose_script.Refused as refused:
            return str(refused)
        assert all(one.unknown == [] for one in made), names
        return {file: one.content for file, one in zip(clean, made, strict=True)}

    def _lines_of(self, name: str) -> set[tuple[str, bytes]]:
        """(file, line) of everything that a patch adds when it is alone."""
        result = self.composed([name])
        assert isinstance(result, dict), result
        return self.added(result)

    def added(self, files: Files) -> set[tuple[str, bytes]]:
        return {
            (file, line)
            for file, content in files.items()
            for line in set(content.splitlines()) - set((self.site / file).read_bytes().splitlines())
        }


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, edited: Callable[[str], Path]) -> Release:
    return Release(request.param, venvs.site(edited(request.param)))


def test_all_go_together_but_those_that_are_known_to_collide(release: Release) -> None:
    if not release.colliding:  # collisions are of two, so what goes together as a whole goes in pairs
        assert isinstance(release.composed(release.patches), dict)
        return
    for pair in itertools.combinations(release.patches, 2):
        both = release.composed(list(pair))
        assert isinstance(both, str) == (frozenset(pair) in release.colliding), both
        assert isinstance(both, dict) or all(name in both for name in pair), both


def check_subsets(release: Release, examples: int) -> None:
    @given(data=st.data())
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    def check(data: Any) -> None:
        names = data.draw(st.lists(st.sampled_from(release.patches), unique=True, min_size=1))
        result = release.composed(names)
        assert release.composed(sorted(names, reverse=True)) == result
        if isinstance(result, str):
            assert any(
                pair <= set(names) and all(name in result for name in pair) for pair in release.colliding
            )
            return
        added = release.added(result)
        for name in names:
            assert release.lines_of(name) <= added, f"{name} is not whole beside {names}"

    check()


def test_any_subset_in_any_order(release: Release) -> None:
    check_subsets(release, 4)


@pytest.mark.slow
def test_many_subsets(release: Release) -> None:
    check_subsets(release, 40)
