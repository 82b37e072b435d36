"""Results on a terminal: they fit it, leave nothing out that decides, and are data."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from support.bench_examples import example
from support.bench_run import unhurried

from ddtool.bench.report import tables
from ddtool.bench.report.look import bar, middle
from ddtool.bench.report.values import number

NAMES = ("result", "tune", "compare", "ugly")


def shown(result: dict[str, Any], width: int = 120, **options: Any) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False, **options)
    for each in tables(result):
        console.print(each)
    return stream.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", NAMES)
def test_fits_the_console(name: str, width: int) -> None:
    assert max(map(len, shown(example(name), width).splitlines())) <= width


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_number_is_cut_or_wrapped(width: int) -> None:
    result = example("result")
    words = set(re.split(r"[\s–]+", shown(result, width)))
    for cell in result["cells"]:
        for arm in cell["arms"].values():
            told = [arm["tok_s"]["median"], arm["tok_s_user"]["median"], arm["round_ms"], arm["errors"]]
            told += [arm[name][q] for name in ("ttft_ms", "itl_ms") for q in ("p50", "p99")]
            assert {number(value) for value in told} <= words
        for ratio in cell["ratios"]:
            assert {f"{ratio[side]:.3f}" for side in ("ratio", "low", "high")} <= words


def test_a_table_is_whole_where_it_can_be() -> None:
    """At 120 columns an arm is one row; at 80 what belongs together stays together."""
    wide, narrow = (shown(example("result"), width) for width in (120, 80))
    row = re.search(r"^tree:12 .*", wide.split("code-c1:")[1], re.M)
    assert row is not None
    assert all(told in row[0] for told in ("181", "1.040", "184", "4.32", "23.7", "109"))
    header = re.search(r"^arm .*TTFT|^ +TTFT.*", narrow, re.M)
    assert header is not None
    assert header[0].split().count("TTFT") == 2 and "ITL" in header[0]


def test_what_spoils_comes_before_any_number() -> None:
    lines = shown(example("result")).splitlines()
    assert lines[1].startswith("tainted: other processes")
    assert lines[2].startswith("warning: example: every number here is made up")


def test_marks_are_explained() -> None:
    result = example("result")
    result["taints"] = ["eager: tree:16 decoded without CUDA graphs"]
    text = shown(result)
    assert re.search(r"^tree:16 +181 +\S+ +!", text, re.M)
    assert not re.search(r"^tree:12 .*!", text, re.M)
    assert "! tainted, see above" in text
    assert re.search(r"^tree:32 +1225 +\S+ +~", text, re.M)
    assert "~ passes differ: tree:32 by 14.0 %" in text


@pytest.mark.parametrize("name", NAMES)
def test_names_are_data(name: str) -> None:
    text = shown(example(name), force_terminal=True, color_system="truecolor")
    assert not re.search(r"\x1b(?!\[[\d;]*m)", text)
    assert "\x07" not in text
    if name == "ugly":
        assert "<script>al" in text
        assert "[red]an" in text


@pytest.mark.parametrize("name", NAMES)
def test_no_color(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3\d", shown(example(name), force_terminal=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["stream", "LANG", "LC_ALL"])
def test_ascii_only(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LANG", "LC_ALL"):
        monkeypatch.setenv(variable, "C" if variable == how else "")
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii" if how == "stream" else "utf-8")
    console = Console(file=stream, width=80, markup=False, highlight=False, emoji=False)
    for each in tables(example(name)):
        console.print(each)
    stream.flush()
    text = raw.getvalue().decode()
    assert text.isascii()
    assert name == "ugly" or "##" in text


def test_what_is_missing_is_left_out() -> None:
    result = example("result")
    for cell in result["cells"]:
        cell["ratios"] = []
        for arm in cell["arms"].values():
            arm.update(accept=None, itl_ms=dict.fromkeys(("p50", "p95", "p99")))
    result.update(lossless=None, objective=None, taints=[], warnings=[])
    text = shown(result)
    for word in (
        "interval",
        "tokens",
        "ITL",
        "share of rounds",
        "plain decoding",
        "jective",
        "tainted",
        "warning",
    ):
        assert word not in text.replace("up to 512 tokens", "")


def test_nothing_at_all() -> None:
    for schema in ("ddtool.bench/1", "ddtool.bench.compare/1", "ddtool.tune/1"):
        assert shown({"schema": schema})


def test_verdicts() -> None:
    result = example("result")
    odd = {"index": 3, "position": 9, "expected": 5, "found": 7, "gap": 1.25, "near_tie": False}
    result["lossless"][0].update(verdict="differs", divergences=[odd] * 7)
    text = shown(result, 200)
    assert "chain, code-c1, sample 3: token 9 is 7 where plain decoding has 5, 1.25 apart" in text
    assert "and 2 more, in --json" in text
    assert "gaps to 0.008 of 0.125" in text


def test_objective() -> None:
    result = example("result")
    assert "Objective met: 181 tok/s of tree:16 in code-c1, 150 wanted at concurrency 1" in shown(result)
    result["objective"].update(met=False, measured=None)
    assert "Objective missed: nothing tok/s" in shown(result)


def test_tune_says_what_to_use_first() -> None:
    tune = example("tune")
    text = shown(tune)
    assert text.index("Use tree:12 at concurrency 1: 3.4 % faster than the chain") < text.index("tok/s,")
    assert "  speculative:\n    algorithm: DDTREE\n    budget: 12\n" in text
    assert "FAILED: accept length: 2.6%" in text
    assert "code, concurrency 16, context 640: use the chain" in text
    tune["recommendation"].update(arm="chain", gain_over_chain=0.0)
    assert "Use the chain at concurrency 1\n" in shown(tune)


def test_tune_says_over_how_many_answers_a_length_was_judged() -> None:
    tune = example("tune")
    table = shown(tune).split("tokens a round by budget")[1].split("ms a round")[0]
    assert re.search(r"^ *chain .* 0\.4 % +179 of 192 ", table, re.M)
    for row in tune["acceptance"]:
        row["judged"] = row["judged"] and {**row["judged"], "over": "all", "alike": None}
    table = shown(tune).split("tokens a round by budget")[1].split("ms a round")[0]
    assert "0.4 %" in table and "same text" not in table
    for row in tune["acceptance"]:
        del row["judged"]  # of an older answer
    assert "off by" not in shown(tune).split("tokens a round by budget")[1].split("ms a round")[0]


def test_many_predictions_do_not_hide_the_measured_ones() -> None:
    text = (
        shown(example("tune")).split("tok/s, code, concurrency 1,")[1].split("tok/s, code, concurrency 16")[0]
    )
    rows = re.findall(r"^(\S+) .*%$", text, re.M)
    assert rows == ["chain", "tree:8:4", "tree:12", "tree:16", "tree:32"]
    assert "14 more were predicted" in text


def test_compare_says_what_differs_and_what_is_missing() -> None:
    compared = example("compare")
    compared["only_b"] = ["code-c1/tree:64"]
    text = shown(compared)
    assert text.index("differs: driver: 590.44.01 in a, 590.48.02 in b") < text.index("code-c1:")
    assert "only in b: code-c1/tree:64" in text
    assert re.search(r"^chain +174 +\S+ +178 +\S+ +1\.024 +1\.010–1\.038 ", text, re.M)


@unhurried
@given(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(1e-6, 1e9), st.integers(1, 30), st.booleans())
def test_bars_keep_to_their_width_and_order(
    one: float, other: float, most: float, width: int, ascii_only: bool
) -> None:
    short, long = (len(bar(value, most, width, ascii_only)) for value in sorted((one, other)))
    assert short <= long <= width
    assert bool(long) == (max(one, other) > 0)


@unhurried
@given(st.text(min_size=1, max_size=60), st.integers(4, 30))
def test_shortened_names_fit(text: str, most: int) -> None:
    assert cell_len(middle(text, most)) <= most


def test_shortened_names_keep_both_ends_however_wide_their_letters_are() -> None:
    assert middle("a-long-name-that-ends-here", 10) == "a-long~ere"
    assert middle("代码生成工作负载", 10) == "代码生… 载"
    assert cell_len(middle("000⺀", 4)) == 4


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "–"),
        (0, "0"),
        (0.0, "0"),
        (float("nan"), "nan"),
        (0.15312, "0.153"),
        (4.1234, "4.12"),
        (23.66, "23.7"),
        (1446.2, "1446"),
        (7, "7"),
        (-3.21, "-3.21"),
    ],
)
def test_numbers(value: float | None, told: str) -> None:
    assert number(value) == told
