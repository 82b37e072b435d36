"""No option is silently ignored: what another one leaves without a meaning is refused before anybody is called."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.cli import here

H, P, SET = ("--host", "host.invalid"), ("--profile", "k26-ddtree"), ("--set", "service.port=1")
TRIAL = ("--request", "x.json", "--load", "1", "--timeout", "9", "--force", "--also-affects", "u")
URL = ("--url", "chain=http://127.0.0.1:1")

# The command; what it would ignore; the option that has to be left out, or added.
IGNORED: list[tuple[tuple[str, ...], tuple[str, ...], str]] = [
    (("deploy", "--attach"), ("--dry-run", "--take-over", "--restart", "--drain", "9"), "--attach"),
    (("deploy", "--offline"), (*H, "--attach", "--take-over", "--restart", "--drain", "9"), "--offline"),
    (("deploy",), ("--facts", "f.json"), "--offline"),
    (("diag", "run", "--attach"), (*TRIAL, "--drain", "0", "--dry-run"), "--attach"),
    (("diag", "run", "--attach"), ("graph-copy",), "--attach"),
    (("diag", "enable", "graph-copy"), ("--drain", "9"), "--restart"),
    (("diag", "disable", "graph-copy"), ("--drain", "9"), "--restart"),
    (("restore",), ("--drain", "9"), "--restart"),
    (("diag", "show", "graph-copy"), ("--against", "wheel", *P, *H), "--diff"),
    (("diag", "show", "graph-copy", "--diff", "--against", "./x"), (*P, *H), "--against"),
    (("bench", "--attach"), ("--dry-run", "--drain", "9"), "--attach"),
    (("bench", "--resume", "2026"), ("--attach", "--rate", "2"), "--resume"),
    (("bench", *URL), ("--arms", "chain", *H, "--drain", "9"), "--url"),
    (("bench", *URL), SET, "PROFILE"),
    (("tune", "--from", "2026"), ("--resume", "2026", *H, "--drain", "9", "--dry-run"), "--from"),
    (("status", "--unit", "u", *H), P, "--unit"),
    (("audit", "--all"), ("--unit", "u"), "--all"),
    (("logs", "--since", "2h"), ("--after-cursor", "c"), "--since"),
]
COUNTS: list[tuple[str, ...]] = [
    ("deploy", "k26-ddtree", "--offline", "--dry-run", "--facts", "none.json", *SET),
    ("deploy", "k26-ddtree", "--attach", *H, "--set", "x"),
    ("diag", "run", "--attach", *P, *H, "--set", "x"),
    ("restore", "--restart", "--drain", "9"),
    ("diag", "show", "graph-copy", "--diff", "--against", "./none"),
    ("diag", "show", "graph-copy", "--diff", "--against", "wheel", *P, "--host", ""),
    ("bench", "k26-ddtree", "--attach", *H, "--set", "x"),
    ("bench", "k26-ddtree", "--resume", "2026", *H, *SET, "--drain", "9", "--dry-run"),
    ("bench", "none", *URL, *SET, "--rate", "2", "--lossless", "--seed", "3", "--dry-run"),
    ("tune", "k26-ddtree", "--resume", "2026", *H, *SET, "--drain", "9", "--dry-run", "--out", "x.yaml"),
    ("tune", "k26-ddtree", "--from", "2026", *SET, "--out", "x.yaml"),
]


@pytest.fixture(autouse=True)
def nobody_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DDTOOL_HOST", "DDTOOL_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("words", "more", "other"), IGNORED, ids=" ".join)
def test_what_would_be_ignored_is_refused(words: tuple[str, ...], more: tuple[str, ...], other: str) -> None:
    status, out, err = here(*words, *more)
    told = re.findall(r"--[a-z-]+|[A-Z]{4,}", err.splitlines()[0])
    assert status == 2 and out == ""
    assert {*told} >= {word for word in more if word.startswith("--")} | {other}, err
    assert "next: " in err


def test_neither_is_an_argument_nor_a_default() -> None:
    """--json has the command to type."""
    status, out, _ = here("diag", "run", "graph-copy", "--attach", "--load", "1", "--json", "--yes")
    error = json.loads(out)["error"]
    assert (status, error["message"]) == (2, "--attach would ignore NAME, --load")
    assert error["hint"] == "ddtool diag run --attach, or the others without --attach"


@pytest.mark.parametrize("words", COUNTS, ids=" ".join)
def test_what_counts_is_not_refused(words: tuple[str, ...]) -> None:
    """They fail, for there is nothing to find, but not for that."""
    yes = ("--yes", "--json") if words[:2] != ("diag", "show") else ("--json",)
    _, out, _ = here(*words, *yes)
    assert "ignore" not in json.loads(out)["error"]["message"]
