"""Signatures are data: what a file may hold is checked, and the pages and the compiled form follow it."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import re2
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.crashmut import CASES
from support.scripts import script

from ddtool.crash import signatures, source
from ddtool.crash.attempts import attempts
from ddtool.crash.classify import classify_lines
from ddtool.crash.hits import firing
from ddtool.crash.needles import needles
from ddtool.crash.scene import Scene
from ddtool.errors import DdtoolError

NEW = """
schema: ddtool.crash-signatures/1
layer: Invented
categories:
  flood: {meaning: Water in the rack., remedy: Pump., next: ddtool doctor}
signatures:
  - id: water
    category: flood
    subcode: 'level-{cm}'
    match: ['water at (?P<cm>\\d+) cm']
    cause: 'The water stands {cm} cm high.'
    remedy: Pump it out.
"""


def file(**changes: Any) -> dict[str, Any]:
    parsed = yaml.safe_load(NEW)
    parsed["signatures"][0] |= changes
    return {"new.yaml": parsed}


def lines(text: str) -> list:
    return list(source.read(io.BytesIO(text.encode())))


def test_a_new_signature_needs_no_code() -> None:
    log = lines("[2026-03-02 04:12:30 TP2] Scheduler hit an exception: water at 12 cm\nKilled\n")
    verdict = classify_lines(log, signatures=signatures.of_files(file()))
    assert (verdict.category, verdict.subcode) == ("flood", "level-12")
    assert verdict.cause == "The water stands 12 cm high."
    assert verdict.first_cause and verdict.first_cause.rank == 2


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"category": "drought"}, "category"),
        ({"role": "villain"}, "role"),
        ({"tier": "loud"}, "tier"),
        ({"match": []}, "match"),
        ({"match": ["@nothing"]}, "no set @nothing"),
        ({"requires": {"nearby": ["x"]}}, "unknown key 'nearby'"),
        ({"numbers": {"at_least": 3}}, "unknown key 'at_least'"),
        ({"subcodes": [{"match": "x", "in": "sky", "subcode": "y"}]}, "unknown scope sky"),
        ({"remedy": ""}, "remedy"),
    ],
)
def test_what_the_schema_does_not_know_is_an_error(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(DdtoolError, match=re.escape(word)):
        signatures.of_files(file(**changes))


def test_two_signatures_of_one_name_are_an_error() -> None:
    parsed = file()
    parsed["again.yaml"] = {**parsed["new.yaml"], "categories": {}}
    with pytest.raises(DdtoolError, match="two signatures"):
        signatures.of_files(parsed)


def test_every_expression_is_one_that_re2_reads_too() -> None:
    for each in signatures.catalogue().signatures:
        conditions = [*each.requires.values(), *each.forbids.values(), each.match, each.unless, each.only]
        for pattern in (pattern for listed in conditions for pattern in listed):
            re2.compile(pattern)
            re.compile(pattern)


def test_compiled_form_and_pages_follow_the_data() -> None:
    generate = script("generate_crashes")
    compiled = (generate.SIGNATURES / signatures.COMPILED).read_text()
    assert compiled == signatures.compiled_form(generate.sources()), "run docs/generate_crashes.py"
    written = {path.name: path.read_text() for path in generate.PAGES.glob("*.md")}
    assert written == generate.pages(), "run docs/generate_crashes.py"


def test_a_compiled_form_of_other_bytes_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new.yaml").write_text(NEW)
    (tmp_path / signatures.COMPILED).write_text(signatures.compiled_form({"new.yaml": NEW.encode()}))
    (tmp_path / "new.yaml").write_text(NEW.replace("Pump it out.", "Swim."))
    monkeypatch.setattr(signatures, "data_folder", lambda name: tmp_path)
    signatures.catalogue.cache_clear()
    try:
        assert signatures.catalogue().signatures[0].remedy == "Swim."
    finally:
        signatures.catalogue.cache_clear()


def test_needles_leave_no_match_out() -> None:
    """Over all labelled logs: a line that an expression matches holds one of its literals."""
    texts = {re.sub(r"\d", "7", line.text[:400]) for case in CASES for line in lines(case["log"])}
    for pattern in signatures.catalogue().patterns():
        literals = needles(pattern)
        without = [text for text in texts if not any(literal in text.lower() for literal in literals)]
        assert not literals or not any(map(signatures.compiled(pattern).search, without)), pattern


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("Too many open files", ("too many open files",)),
        (r"(?i)out of memory: kill(ed)? process", ("out of memory: kill",)),
        (r"\b(EMFILE|ENFILE)\b", ("emfile", "enfile")),
        (r"abc|x", ()),
        (r"[a-z]+x?", ()),
        (r"colou?r of \S+", ("r of ",)),
    ],
)
def test_needles(pattern: str, expected: tuple[str, ...]) -> None:
    assert needles(pattern) == expected


@given(
    st.from_regex(
        r"(Retract|size of tensor a \(\d{1,3}\)|Xid \(PCI:0000:0[1-9]\): (13|31|43),)", fullmatch=True
    )
)
def test_a_text_made_from_an_expression_holds_its_needle(text: str) -> None:
    pattern = r"(Retract|size of tensor a \(\d{1,3}\)|Xid \(PCI:0000:0[1-9]\): (13|31|43),)"
    assert any(literal in text.lower() for literal in needles(pattern))


def test_long_logs_are_searched_like_short_ones() -> None:
    """RE2 looks for the literals there."""
    case = next(case for case in CASES if case["id"] == "001")
    first, second, rest = case["log"].split("\n", 2)
    noise = second.partition(": ")[0] + ": [2026-05-21 10:11:13] nothing\n"
    short, long = lines(case["log"]), lines(f"{first}\n{second}\n{noise * 4000}{rest}")
    known = signatures.catalogue()

    def fired(log: list) -> list[str]:
        scene = Scene(attempts(log)[0])
        return [hit.signature.id for found in firing(scene, known) for hit in found]

    assert fired(long) == fired(short)


def test_advice_is_never_a_cause() -> None:
    advice = (
        "[2026-03-02 04:12:30 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/srv/sglang/srt/x.py", line 1, in f\n    g()\n'
        "Exception: Capture cuda graph failed: CUDA error: operation not permitted when stream is capturing\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so an illegal memory access ...\n"
        "Possible solutions:\n1. set --mem-fraction-static to a smaller value; CUDA out of memory\n"
    )
    assert classify_lines(lines(advice)).category == "graph_capture_invalid"
