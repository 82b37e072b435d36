"""Figures as inline SVG whose colours are the page's: matplotlib draws with stand-ins, CSS variables replace them.

So one drawing is right in light, in dark and on paper, and nothing in it needs a script, a font file or a second file.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#010101", "#010102", "#010103", "#010104"
NAMES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"}
ARM_COLOURS, STEP_COLOURS = 8, 8
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
WIDTH = 4.6
NAME_EDGE = 0.19  # from the left edge to where the name of the vertical axis ends
STYLE: dict[Any, Any] = {  # Any: the names that matplotlib knows differ by its release
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
}
SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"


@dataclass(frozen=True)
class Plot:
    """A drawing for the page. alt: what it shows, for who cannot see it."""

    title: str
    alt: str
    svg: str


def arm_colour(index: int) -> str:
    """The stand-in for the colour of the arm in this place of the page's order."""
    return f"#0a00{index % ARM_COLOURS:02x}"


def marker(index: int) -> str:
    """The mark of the arm, or of the line, in this place."""
    return MARKERS[index % len(MARKERS)]


def step_colour(index: int) -> str:
    return f"#0b00{index % STEP_COLOURS:02x}"


def css_name(colour: str) -> str:
    """The CSS variable that a stand-in means."""
    if colour in NAMES:
        return NAMES[colour]
    kind = {"0a": "arm", "0b": "step"}[colour[1:3]]
    return f"{kind}-{int(colour[5:], 16)}"


@contextmanager
def axes(
    height: float = 3.0, left: float = 0.72, right: float = 0.95, bottom: float = 0.48, top: float = 0.12
) -> Iterator[Axes]:
    """Axes in our style on a figure WIDTH wide. Sizes in inches: fixed margins, so that plots stand in line."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height))
        made = figure.add_axes(
            (left / WIDTH, bottom / height, 1 - (left + right) / WIDTH, 1 - (bottom + top) / height)
        )
        made.yaxis.set_label_coords((NAME_EDGE - left) / (WIDTH - left - right), 0.5)
        yield made


def plot(ax: Axes, title: str, alt: str, prefix: str) -> Plot:
    """The figure of `ax` as a Plot. prefix: makes its ids the page's only ones of that name."""
    stream = io.BytesIO()
    figure = ax.get_figure(root=True)
    assert figure is not None
    with mpl.rc_context({**STYLE, "svg.hashsalt": prefix}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the reader's browser has its own fonts
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(stream.getvalue())  # noqa: S314  matplotlib wrote it just now
    return Plot(title, alt, _inline(root, title, alt, prefix))


def _inline(root: ElementTree.Element, title: str, alt: str, prefix: str) -> str:
    """The drawing without what only a file of its own needs: namespaces, metadata, sizes, unused ids."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in {f"{SVG}metadata", f"{SVG}style"} or (child.tag.endswith("RDF")):
                parent.remove(child)
    used = set(
        re.findall(
            r"#([\w-]+)", " ".join(v for e in root.iter() for k, v in e.attrib.items() if k != "style")
        )
    )
    numbers = count()
    names = {name: f"{prefix}-{next(numbers)}" for name in sorted(used)}
    for element in root.iter():
        element.tag = element.tag.removeprefix(SVG)
        attributes = {key.removeprefix(XLINK): value for key, value in element.attrib.items()}
        element.attrib.clear()
        for key, value in attributes.items():
            if key == "id":
                if value in names:
                    element.set("id", names[value])
            elif key == "style":
                element.set("style", _style(value))
            else:
                value = re.sub(r"#([\w-]+)", lambda m: "#" + names.get(m[1], m[1]), value)
                element.set(key, re.sub(r"(\.\d\d)\d+", r"\1", value))  # a hundredth of a point is enough
    view = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib.update(viewBox=view, role="img", **{"aria-label": f"{title}. {alt}"})
    return ElementTree.tostring(root, encoding="unicode")


def _style(value: str) -> str:
    """A style whose colours are the page's, and whose font is too."""
    value = re.sub(r"font: *([\d.]+px)[^;]*", r"font-size: \1", value)
    value = re.sub(r"font-family: *[^;]*;?", "", value)
    return re.sub(r"#0[1ab][0-9a-f]{4}", lambda m: f"var(--{css_name(m[0])})", value)
