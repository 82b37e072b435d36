"""The same crash again has the same name; another has another."""

from __future__ import annotations

import io

from support.crashmut import CASES

from ddtool.crash.classify import classify
from ddtool.crash.fingerprint import fingerprint, plain
from ddtool.crash.model import Frame


def log_of(name: str) -> str:
    return next(case["log"] for case in CASES if case["id"] == name)


def name_of(log: str) -> str | None:
    return classify(io.BytesIO(log.encode())).fingerprint


def test_times_pids_ranks_and_paths_do_not_matter() -> None:
    log = log_of("001")
    again = log.replace("10:12:", "23:59:").replace("48211", "512").replace("TP3", "TP6")
    again = again.replace("/sgl-workspace/sglang/python", "/opt/venv/lib/python3.11/site-packages")
    assert name_of(again) == name_of(log)


def test_line_numbers_of_a_patched_file_do_not_matter() -> None:
    log = log_of("001")
    assert name_of(log.replace("line 812", "line 819")) == name_of(log)


def test_another_place_is_another_crash() -> None:
    log = log_of("001")
    assert name_of(log.replace("in replay_prepare", "in prepare_again")) != name_of(log)


def test_labelled_failures_have_names_of_their_own() -> None:
    names = {}
    for case in CASES:
        name = name_of(case["log"])
        assert (name is None) == (case["category"] == "no_crash")
        names.setdefault(name, []).append(case["id"])
    shared = [ids for name, ids in names.items() if name and len(ids) > 1]
    assert all(len(ids) == 2 for ids in shared), shared  # the same fault told by two logs


def test_the_name_never_shifts() -> None:
    """A change of the rules needs a new version: hosts count by this name."""
    frames = [Frame("/x/sglang/srt/a.py", 1, "outer"), Frame("/y/torch/b.py", 2, "inner")]
    made = fingerprint("sched_bug", "exception", "KeyError: 17 in /tmp/ab/c.py at 0x7f00", frames)
    assert made == "f1-229ae1980044"


def test_plain_leaves_what_stays_the_same() -> None:
    assert (
        plain("RuntimeError: size 8 of 0x7ffe in /a/b/c.py, rank 3")
        == "RuntimeError: size # of # in c.py, rank"
    )
