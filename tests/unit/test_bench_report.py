"""The page of a run: self-contained, escaped, complete, and legible in its two themes. No browser needed."""

from __future__ import annotations

import importlib.util
import re
from html.parser import HTMLParser
from importlib.resources import files
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bench_examples import example, numbers
from support.bench_run import run, speeds, unhurried

from ddtool.bench.report import check_html, grids, html
from ddtool.bench.report.places import apart, spread
from ddtool.bench.report.places import ticks as log_ticks
from ddtool.bench.results import summarise
from ddtool.errors import UsageError

VOID = {"meta"}
OURS = (
    "html head meta title style body header main section h1 h2 h3 p strong ul li div figure figcaption pre table "
    "caption thead tbody tr th td span data dl dt dd svg g defs path text use clippath rect"
)


class Page(HTMLParser):
    """A page's tags, attributes and texts; fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, found, value in self.attributes if found == name]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Every page once: drawing takes a second."""
    return {
        "both": html(example("result"), example("tune")),
        "bench": html(example("result")),
        "tune": html(example("tune")),
        "ugly": html(example("ugly")),
    }


NAMES = ("both", "bench", "tune", "ugly")


@pytest.mark.parametrize("name", NAMES)
def test_well_formed(name: str, pages: dict[str, str]) -> None:
    page = Page(pages[name])
    assert page.tags <= set(OURS.split())
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    references = [value[1:] for value in page.values("href")]
    references += re.findall(r"url\(#([\w-]+)\)", pages[name])
    assert references and set(references) <= set(ids)


@pytest.mark.parametrize("name", NAMES)
def test_self_contained(name: str, pages: dict[str, str]) -> None:
    page = Page(pages[name])
    assert not re.search(r"https?:|@import|javascript:", pages[name])
    assert "script" not in page.tags and "link" not in page.tags
    assert not [
        found for _, found, _ in page.attributes if found.startswith("on") or found in {"src", "action"}
    ]
    assert all(value.startswith("#") for value in page.values("href"))
    assert set(re.findall(r"url\((.)", pages[name])) <= {"#"}
    assert "default-src 'none'; style-src 'unsafe-inline'" in page.values("content")
    assert len(pages[name].encode()) < 1_000_000


def test_names_are_data(pages: dict[str, str]) -> None:
    page = Page(pages["ugly"])
    texts = "\n".join(page.texts)
    for told in (
        "<img src=x onerror=alert(1)>",
        "</title><script>alert('host')</script>",
        "<script>alert('arm')</script>",
        "[red]an arm whose name",
        "<b>live diagnostics</b>",
        "--tp 8 </td>",
    ):
        assert told in texts
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", pages["ugly"])


def test_mathematics_and_markup_stay_letters_in_drawings() -> None:
    result = example("result")
    for cell in result["cells"]:
        cell["arms"] = {"$\\frac{a}{b}$<i>": cell["arms"]["chain"], "chain": cell["arms"]["chain"]}
    page = Page(html(result))
    assert "i" not in page.tags
    assert any("\\frac{a}" in text for text in page.texts)


@pytest.mark.parametrize(
    ("name", "parts"),
    [("both", ("result", "tune")), ("bench", ("result",)), ("tune", ("tune",)), ("ugly", ("ugly",))],
)
def test_every_number_is_there(name: str, parts: tuple[str, ...], pages: dict[str, str]) -> None:
    page = Page(pages[name])
    exact = {float(value) for tag, found, value in page.attributes if (tag, found) == ("data", "value")}
    words = set(re.findall(r"\d+(?:\.\d+)?", " ".join(page.texts)))
    for part in parts:
        result = example(part)
        measured = [numbers(cell[key]) for cell in result.get("cells", ()) for key in ("arms", "ratios")]
        measured += [
            numbers(result[key])
            for key in (
                "lossless",
                "slo",
                "verify",
                "fit",
                "acceptance",
                "predicted",
                "measured",
                "experts",
                "split",
            )
            if result.get(key)
        ]
        asked = [cell["cell"] for cell in result.get("cells", ())]
        assert {value for each in measured for value in each} <= exact
        assert {f"{value:g}" for value in numbers(asked)} - words <= {"1"}  # "one at a time"


def test_the_fingerprint_is_there(pages: dict[str, str]) -> None:
    page = Page(pages["bench"])
    texts = " ".join(page.texts)
    for told in (
        "8 x NVIDIA H200",
        "590.44.01",
        "0.5.12.post1 5b0c6e1f4a7d92c3",
        "4e07408562bedb8b",
        "mem-fraction-static",
    ):
        assert told in texts
    differing = texts.split("In which the arms differ")[1]
    assert "speculative-algorithm" in differing and "DFLASH" in differing
    assert "mem-fraction-static" not in differing


def test_what_is_missing_is_left_out() -> None:
    result = example("result")
    for cell in result["cells"]:
        cell["ratios"] = []
        for arm in cell["arms"].values():
            arm.update(accept=None, ttft_ms=None, gpu=None, goodput=None)
    result.update(lossless=None, objective=None, taints=[], warnings=[], fingerprint={}, slo=None)
    texts = " ".join(Page(html(result)).texts)
    words = (
        "Accepted,Depth,Relative,first token:,GPU,good/s,Losslessness,bjective,Tainted,Warnings,What to use"
    )
    for word in words.split(","):
        assert word not in texts
    assert "Throughput: code" in texts


def test_the_best_of_a_load_stands_out_though_an_arm_of_the_page_was_not_run_there() -> None:
    """As in a tuning run, whose page has the fit's arms and whose table those of the verification."""
    rates = [
        {"chain": 850, "tree:11": 1325, "tree:19": 1337},
        {"chain": 2155, "tree:11": 3005, "tree:19": 2748},
    ]
    cells = [
        {
            "cell": {"key": f"code-c{number}"},
            "arms": {arm: {"tok_s": {"median": n}} for arm, n in each.items()},
        }
        for number, each in enumerate(rates)
    ]
    made = grids.overview(cells, ["chain", "tree:7", "tree:11", "tree:19"])
    assert made is not None
    stands_out = {(made.rows[row].name, made.headers[column].name) for row, column in made.bold}
    assert stands_out == {("code-c0", "tree:19"), ("code-c1", "tree:11")}


def test_an_empty_result_is_a_page() -> None:
    for schema in ("ddtool.bench/1", "ddtool.tune/1"):
        Page(html({"schema": schema, "run": "r", "profile": "p", "host": "h"}))


def test_a_single_load_has_bars_from_zero() -> None:
    result = example("result")
    result["cells"] = result["cells"][:1]
    page = html(result)
    assert "output tok/s (line: lowest to highest pass)" in page
    assert "95 % interval" in page
    axis = re.search(r'aria-label="Throughput: code.*?</svg>', page, re.S)
    assert axis is not None
    assert re.search(r"<text[^>]*>0</text>", axis[0])


def test_drawings_say_what_they_show(pages: dict[str, str]) -> None:
    labels = [
        value for tag, name, value in Page(pages["both"]).attributes if (tag, name) == ("svg", "aria-label")
    ]
    assert len(labels) == len(set(labels)) == pages["both"].count("<figure>")
    assert any("Relative to the chain: code" in each and "tree:12 1.04 to 0.798" in each for each in labels)


def test_arms_keep_their_colour(pages: dict[str, str]) -> None:
    """The label of an arm has one colour in every plot, and it is that of the key in the tables."""
    found: dict[str, set[str]] = {}
    for style, text in re.findall(
        r'<text style="([^"]*)"[^>]*>(tree:[^<]*|chain|plain)</text>', pages["both"]
    ):
        found.setdefault(text, set()).update(re.findall(r"var\(--(arm-\d)\)", style))
    assert {arm: len(colours) for arm, colours in found.items()} == dict.fromkeys(found, 1)
    (colour,) = found["tree:12"]
    assert re.search(rf'<span class="key {colour}"></span>tree:12<', pages["both"])


def test_what_a_run_writes_is_what_the_example_has() -> None:
    """The examples are made up; their names are not."""
    lines = [line for arm in ("chain", "tree:32") for line in speeds(arm, [100.0, 101.0, 102.0, 99.0, 100.5])]
    written = summarise(run(arms=("chain", "tree:32")), lines)
    mine, ours = example("result"), written["cells"][0]["arms"]["tree:32"]
    assert written.keys() == mine.keys()
    assert written["cells"][0]["cell"].keys() == mine["cells"][0]["cell"].keys()
    assert written["cells"][0]["ratios"][0].keys() == mine["cells"][0]["ratios"][0].keys()
    theirs = mine["cells"][0]["arms"]["tree:32"]
    assert ours.keys() == theirs.keys()
    for part in ("tok_s", "ttft_ms", "accept"):
        assert ours[part].keys() == theirs[part].keys()
    assert "Relative to the chain: code" in html(written)


def test_the_same_result_gives_the_same_page() -> None:
    tune = example("tune")
    assert html(tune) == html(tune)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name)
    )
    with pytest.raises(UsageError) as caught:
        check_html()
    assert "matplotlib" in caught.value.message and caught.value.hint == "pip install 'ddtool[report]'"


def themes() -> list[dict[str, str]]:
    css = files("ddtool.bench.report").joinpath("page.css").read_text("utf-8")
    return [
        dict(re.findall(r"--([\w-]+): (#\w{6})", root)) for root in re.findall(r":root \{(.*?)\}", css, re.S)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_drawings_have_the_page_s_colours_alone(name: str, pages: dict[str, str]) -> None:
    """A stand-in that nothing replaced, or a variable that a theme lacks, is invisible in one of them."""
    styles = " ".join(Page(pages[name]).values("style"))
    light, dark = themes()
    assert light.keys() == dark.keys()
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?!\))", re.sub(r"url\(#[^)]*\)", "", styles))
    assert set(re.findall(r"var\(--([\w-]+)\)", styles)) <= light.keys()


def linear(colour: str) -> Any:
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    dark, light = sorted(float(linear(each) @ [0.2126, 0.7152, 0.0722]) for each in (one, other))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", themes(), ids=["light", "dark"])
def test_contrast(theme: dict[str, str]) -> None:
    """WCAG: 4.5 for text, arms' names among it; 3 for the pieces of a bar."""
    least = {
        name: 3.0 if name.startswith("step") else 4.45
        for name in theme
        if name not in {"paper", "panel", "grid"}
    }
    assert {name for name, limit in least.items() if contrast(theme[name], theme["paper"]) < limit} == set()


# Machado, Oliveira and Fernandes 2009, at full severity.
BLINDNESS = {
    "none": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
)


def lab(rgb: Any) -> Any:
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", BLINDNESS)
@pytest.mark.parametrize("theme", themes(), ids=["light", "dark"])
def test_colours_are_told_apart(theme: dict[str, str], sight: str) -> None:
    """A distance of 2.3 in Lab is just seen; thin lines and small keys need several of it."""
    seen = {name: lab(np.array(BLINDNESS[sight]) @ linear(colour)) for name, colour in theme.items()}
    for kind in ("arm", "step"):
        names = sorted(name for name in seen if name.startswith(kind))
        assert min(float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(names, 2)) > 14


@unhurried
@given(st.lists(st.floats(-50, 400), max_size=12), st.floats(1, 20))
def test_labels_do_not_meet(places: list[float], gap: float) -> None:
    moved = spread(sorted(places), gap, 300.0)
    assert all(high - low >= gap - 1e-9 for low, high in pairwise(moved))
    assert not moved or (moved[0] >= 0 and moved[-1] <= max(300.0, (len(moved) - 1) * gap) + 1e-9)


def test_labels_with_room_stay_where_their_lines_end() -> None:
    assert spread([10.0, 50.0, 90.0], 10, 100) == [10.0, 50.0, 90.0]


@unhurried
@given(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=40, unique=True))
def test_ticks_leave_room_for_their_names(values: list[float]) -> None:
    values.sort()
    kept = apart(values, values)
    assert kept[-1] == values[-1]
    assert all(high - low >= 0.11 * (values[-1] - values[0]) for low, high in pairwise(kept))


@unhurried
@given(st.floats(1e-3, 1e6), st.floats(12, 1e5))
def test_a_logarithmic_axis_has_ticks(low: float, factor: float) -> None:
    assert 1 <= len(log_ticks(low, low * factor)) <= 9


def test_what_is_public_stays_a_function(pages: dict[str, str]) -> None:
    """A module of the same name would take its place as soon as it is loaded."""
    from ddtool.bench import report

    assert pages
    assert all(callable(getattr(report, name)) for name in ("html", "tables", "check_html"))
