"""Composition: anchors by syntax tree, every byte that is not ours kept, order-independent or refused by name."""

from __future__ import annotations

import ast
import codecs
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtool.agent import compose_script
from ddtool.agent.compose import compose as compose_in
from ddtool.agent.compose import patch_sha, program
from ddtool.agent.compose_script import Job, Refused, find_function, function_sha256
from ddtool.agent.errors import PreflightError, UsageError

SOURCE = b'''"""Module."""
import os


class Buffers:
    def copy(self, dsts):
        """Copy."""
        total = 0
        for dst in dsts:
            total += dst  # count
        return total


def other(dsts):
    total = 0
    return total
'''


def patch(
    name: str, *edits: tuple[str, str, str], function: str = "Buffers.copy", **more: Any
) -> dict[str, Any]:
    listed = [{"anchor": anchor, "place": place, "code": code} for anchor, place, code in edits]
    target = {
        "file": "m.py",
        "function": function,
        "append": None,
        "ast_sha256": {},
        "edits": listed,
        "releases": ["1"],
    }
    return {"name": name, "targets": [{**target, **more}]}


def compose(
    file: str, content: bytes, patches: list[dict[str, Any]], version: str | None = None
) -> tuple[bytes, list[Any]]:
    (one,) = compose_script.compose([Job(file, content, patches)], version)
    return one.content, one.unknown


def composed(source: bytes, *patches: dict[str, Any]) -> str:
    return compose("m.py", source, list(patches))[0].decode()


def sha_of(source: bytes, function: str = "Buffers.copy") -> str:
    node = find_function(ast.parse(source), function)
    assert node is not None
    return function_sha256(node)


def test_before_after_replace_and_append() -> None:
    edits = patch(
        "p",
        ("total = 0", "before", "check(dsts)\nif not dsts:\n    return 0"),
        ("total += dst", "after", "seen(dst)"),
        ("return total", "replace", "return total + 1"),
        append="def check(dsts):\n    pass\n",
    )
    text = composed(SOURCE, edits)
    assert (
        '''        """Copy."""
        check(dsts)
        if not dsts:
            return 0
        total = 0
        for dst in dsts:
            total += dst  # count
            seen(dst)
        return total + 1


def other(dsts):
    total = 0
    return total


def check(dsts):
    pass
'''
        in text
    )


def test_no_patch_is_no_change() -> None:
    assert compose("m.py", SOURCE, []) == (SOURCE, [])


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("bom", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("tail", [b"", b"\n"])
def test_newlines_bom_and_missing_last_newline_are_kept(newline: bytes, bom: bytes, tail: bytes) -> None:
    source = bom + SOURCE.rstrip(b"\n").replace(b"\n", newline) + tail.replace(b"\n", newline)
    result, _ = compose("m.py", source, [patch("p", ("total = 0", "before", "check()"))])
    assert result == source.replace(
        b"        total = 0", b"        check()" + newline + b"        total = 0", 1
    )


def test_encoding_cookie_and_tabs_are_kept() -> None:
    source = "# -*- coding: latin-1 -*-\nNAME = 'é'\ndef f():\n\tx = 'ü'; y = 1\n\tz = 2\n".encode("latin-1")
    result, _ = compose("m.py", source, [patch("p", ("z = 2", "before", "if y:\n    pass"), function="f")])
    assert result == source.replace(b"\tz = 2", b"\tif y:\n\t    pass\n\tz = 2")
    with pytest.raises(Refused, match="shares its line"):
        compose("m.py", source, [patch("p", ("y = 1", "before", "pass"), function="f")])


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"# coding: klingon\ndef f():\n    z = 2\n", "unknown encoding"),
        (b"NAME = '\xe9'\ndef f():\n    z = 2\n", "invalid or missing encoding|can't decode"),
        (codecs.BOM_UTF8 + b"# coding: latin-1\ndef f():\n    z = 2\n", "encoding problem"),
        (b"def f():\n    z = 2\n\0", "null byte"),
    ],
)
def test_bytes_that_python_would_not_read_are_refused(source: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        compose("m.py", source, [patch("p", ("z = 2", "before", "pass"), function="f")])


def test_code_that_the_files_encoding_lacks_is_refused() -> None:
    source = b"# coding: latin-1\ndef f():\n    z = 2\n"
    with pytest.raises(Refused, match="guard: the file's encoding iso-8859-1 has no '→'"):
        compose("m.py", source, [patch("guard", ("z = 2", "before", "x = '→'"), function="f")])


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (("nothing()", "before", "x"), "matches 0 times"),
        (("total = 0\ntotal += dst", "before", "x"), "one statement"),
        (("total = 0", "beside", "x"), "place must be"),
        (("total = 0", "before", "def"), "does not compile"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(edit: tuple[str, str, str], why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        composed(SOURCE, patch("guard-x", edit))
    assert "guard-x" in str(refused.value)


def test_an_ambiguous_anchor_is_refused() -> None:
    twice = SOURCE.replace(b"        return total", b"        total = 0\n        return total", 1)
    with pytest.raises(Refused, match="matches 2 times"):
        composed(twice, patch("p", ("total = 0", "before", "x()")))


def test_a_missing_function_is_refused() -> None:
    with pytest.raises(Refused, match=r"Buffers\.fill in m\.py: there is no such function"):
        composed(SOURCE, patch("p", ("total = 0", "before", "x()"), function="Buffers.fill"))


def test_the_hash_ignores_layout_comments_and_docstrings_only() -> None:
    known = sha_of(SOURCE)
    assert sha_of(SOURCE.replace(b"  # count", b"").replace(b'"""Copy."""', b'"""Other."""')) == known
    assert sha_of(SOURCE.replace(b"total += dst", b"total += (\n                dst)")) == known
    assert sha_of(SOURCE.replace(b"def other", b"def another")) == known
    assert sha_of(SOURCE.replace(b"total += dst", b"total -= dst")) != known
    assert sha_of(SOURCE.replace(b"total = 0", b"total = 1")) != known


def test_the_hash_is_the_same_on_every_python() -> None:
    """Fixed by value, seen equal on 3.11 and 3.12 (whose f-strings parse differently)."""
    source = b"""@decorate(1)
async def f(a: int = 1, /, *b: 'str', c, **d) -> None:
    x = f'{a!r:>{c}} and {d}'
    async with a as b: pass
    return [i async for i in b if i] or (lambda: ...) or b'\\x00' or 1e400 or 'caf\xc3\xa9'
"""
    assert sha_of(source, "f") == "37725b5e57e0e0b9ea86e2b50604161459d2606d7c22840ba964b968dbd2a3bd"


def test_known_and_unknown_functions_are_told_apart() -> None:
    edit = ("total = 0", "before", "x()")
    _, unknown = compose("m.py", SOURCE, [patch("p", edit, ast_sha256={"1": sha_of(SOURCE)})])
    assert unknown == []
    _, unknown = compose("m.py", SOURCE, [patch("p", edit, ast_sha256={"1": "0" * 64})])
    assert [(item["patch"], item["function"], item["ast_sha256"]) for item in unknown] == [
        ("p", "Buffers.copy", sha_of(SOURCE))
    ]
    assert unknown[0]["source"].startswith("def copy(self, dsts):")


def test_of_alternatives_the_one_that_knows_the_function_is_taken() -> None:
    new = SOURCE.replace(b"total = 0", b"total = 7")
    two = patch("p", ("total = 7", "before", "new()"), ast_sha256={"2": sha_of(new)})
    two["targets"].insert(
        0, patch("p", ("total = 0", "before", "old()"), ast_sha256={"1": sha_of(SOURCE)})["targets"][0]
    )
    two["targets"][1]["releases"] = ["2"]
    assert "old()" in composed(SOURCE, two) and "new()" in composed(new, two)


def generations() -> dict[str, Any]:
    """A patch whose function lives in m.py up to release 1, and in n.py from release 2 on."""
    old = patch("p", ("total = 0", "before", "old()"), ast_sha256={"1": sha_of(SOURCE)}, append="OLD = 1")
    new = patch("p", ("y = 2", "before", "new()"), function="moved", file="n.py", releases=["2"])
    new["targets"][0]["ast_sha256"] = {"2": sha_of(MOVED, "moved")}
    return {"name": "p", "targets": old["targets"] + new["targets"]}


MOVED = b"def moved():\n    y = 2\n"


def both(m: bytes, n: bytes, version: str | None = None) -> list[Any]:
    targets = generations()["targets"]
    jobs = [
        Job(file, content, [{"name": "p", "targets": [one for one in targets if one["file"] == file]}])
        for file, content in (("m.py", m), ("n.py", n))
    ]
    return compose_script.compose(jobs, version)


def test_the_generation_that_the_functions_belong_to_is_chosen_for_all_files() -> None:
    """Release 1 may have an n.py too, and release 2 an m.py: neither is refused, neither is edited."""
    first = both(SOURCE, b"X = 1\n")
    assert [one.patches for one in first] == [["p"], []] and b"OLD = 1" in first[0].content
    second = both(b"X = 1\n", MOVED)
    assert [one.patches for one in second] == [[], ["p"]] and second[0].content == b"X = 1\n"
    assert not first[0].unknown and not second[1].unknown


def test_hashes_outrank_the_version_which_orders_guesses_only() -> None:
    changed, moved = SOURCE.replace(b"return total", b"return -total", 1), MOVED + b"    return y\n"
    assert both(SOURCE, MOVED + b"    return y\n", "2")[0].patches == ["p"]
    assert both(changed, moved, "1+local")[0].patches == ["p"]
    assert both(changed, moved, "2")[1].patches == ["p"]
    (unknown,) = both(changed, moved, "3")[1].unknown
    assert (unknown["file"], unknown["function"]) == ("n.py", "moved")
    assert unknown["edits"] == [{"place": "before", "anchor": "y = 2", "code": "new()"}]


def test_a_claimed_version_is_not_patched_as_another_one() -> None:
    """Its own anchor is gone; that the other generation's happens to match proves nothing."""
    moved = MOVED + b"    return y\n"
    with pytest.raises(Refused, match=r"Buffers\.copy in m\.py: the anchor `total = 0` matches 0 times"):
        both(SOURCE.replace(b"total = 0", b"total = 1"), moved, "1")


def test_patches_compose_in_any_order() -> None:
    patches = [
        patch("a", ("total = 0", "before", "a()"), append="A = 1"),
        patch("b", ("total = 0", "before", "b()"), ("return total", "replace", "return b(total)")),
        patch("c", ("total = 0", "after", "c()"), append="C = 1"),
    ]
    assert len({composed(SOURCE, *order) for order in permutations(patches)}) == 1
    with_c = composed(SOURCE, *patches)
    assert composed(SOURCE, *patches[:2]) == with_c.replace("        c()\n", "").replace("\n\nC = 1\n", "")


@given(st.sampled_from(["before", "after", "replace"]), st.sampled_from(["before", "after", "replace"]))
def test_two_patches_on_one_statement_compose_or_are_both_named(one: str, other: str) -> None:
    first = patch("first", ("total = 0", one, "x = 1\ny = 2"))
    second = patch("second", ("total = 0", other, "z = 3"))
    try:
        results = {composed(SOURCE, first, second), composed(SOURCE, second, first)}
    except Refused as refused:
        assert one == other == "replace" and "first and second" in str(refused)
        return
    assert len(results) == 1 and all(text in results.pop() for text in ("x = 1", "z = 3")[:1])


def test_inserting_inside_replaced_lines_is_refused() -> None:
    loop = "for dst in dsts:\n    total += dst"
    with pytest.raises(Refused, match="inner and outer"):
        composed(
            SOURCE,
            patch("outer", (loop, "replace", "pass")),
            patch("inner", ("total += dst", "before", "x()")),
        )


def fake_venv(folder: Path) -> str:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(sys.executable)
    return str(folder)


def test_it_runs_in_the_venvs_python_with_the_identity_filled_in(tmp_path: Path) -> None:
    venv = fake_venv(tmp_path / "venv")
    definition = patch("p", ("total = 0", "before", "say('@DDTOOL_PATCH@', '@DDTOOL_SHA@', '@DDTOOL_FILE@')"))
    (result,) = compose_in(venv, [("m.py", SOURCE, [definition])])
    assert f"say('p', '{patch_sha(definition)}', 'm.py')" in result.content.decode()
    assert [item["patch"] for item in result.unknown] == ["p"]
    assert compose_in(venv, []) == []


def test_refusals_and_a_missing_python_are_errors_for_the_operator(tmp_path: Path) -> None:
    venv = fake_venv(tmp_path / "venv")
    with pytest.raises(UsageError, match="matches 0 times"):
        compose_in(venv, [("m.py", SOURCE, [patch("p", ("gone()", "before", "x()"))])])
    with pytest.raises(UsageError, match="does not parse"):
        compose_in(venv, [("m.py", b"def f(:\n", [patch("p", ("gone()", "before", "x()"))])])
    with pytest.raises(PreflightError, match="cannot run"):
        compose_in(str(tmp_path / "none"), [("m.py", SOURCE, [])])


def test_the_script_needs_nothing_but_an_interpreter() -> None:
    run = subprocess.run(
        [sys.executable, *program()],
        input='{"version": null, "jobs": []}',
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == '{"files": []}'
