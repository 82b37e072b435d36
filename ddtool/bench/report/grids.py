"""The numbers of a result as tables for the page: all of them, in groups that a reader can take in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ddtool.bench.report.values import Json, arms_of, base_of, look, plain_text, pooled, ratio_of

QUANTILES = ("p50", "p95", "p99")
LATENCIES = (("TTFT", "ttft_ms"), ("ITL", "itl_ms"), ("TPOT", "tpot_ms"), ("E2E", "e2e_ms"))

LONG = 40


@dataclass(frozen=True)
class Header:
    """A column: its group above it ("" for none), its own name, and the places of its numbers if they are fixed."""

    group: str
    name: str
    places: int | None = None


@dataclass(frozen=True)
class Row:
    """name: what the row is of. arm: its place in the page's order, which gives it a colour; None for other rows."""

    name: Any
    arm: int | None
    cells: Sequence[Any]


@dataclass(frozen=True)
class Grid:
    """A table. Its cells are numbers, texts, None, or lists of them."""

    title: str
    first: str
    headers: Sequence[Header]
    rows: Sequence[Row]
    bold: frozenset[tuple[int, int]] = frozenset()
    """Row and column of the cells that stand out."""

    def kind(self, column: int) -> str:
        """`text`, `long` (text that may be wrapped), or "" for numbers."""
        texts = [row.cells[column] for row in self.rows if isinstance(row.cells[column], str)]
        return "" if not texts else "text" if max(map(len, texts)) <= LONG else "long"

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The upper line of headers: name and how many columns it spans."""
        spans: list[tuple[str, int]] = []
        for header in self.headers:
            if spans and spans[-1][0] == header.group:
                spans[-1] = (header.group, spans[-1][1] + 1)
            else:
                spans.append((header.group, 1))
        return spans


Reader = tuple[Header, Sequence[Any]]


def grid(
    title: str, first: str, names: Sequence[Any], order: Sequence[str], columns: Iterable[Reader]
) -> Grid | None:
    """A table of these columns, without those that hold nothing; None where all do."""
    kept = [(header, cells) for header, cells in columns if any(cell not in (None, [], "") for cell in cells)]
    if not kept:
        return None
    rows = [
        Row(
            name,
            order.index(name) if name in order else None,
            [cells[index] for _, cells in kept],
        )
        for index, name in enumerate(names)
    ]
    return Grid(title, first, [header for header, _ in kept], rows)


def rows_grid(
    title: str, rows: Sequence[Json], order: Sequence[str], first: str, columns: Mapping[str, str]
) -> Grid | None:
    """A table of a list of objects. first: the key that names a row; columns: header by key."""
    names = [row.get(first) for row in rows]
    return grid(
        title,
        first,
        names,
        order,
        [(Header("", name), [row.get(key) for row in rows]) for key, name in columns.items()],
    )


def overview(cells: Sequence[Json], order: Sequence[str]) -> Grid | None:
    """tok/s of each arm by cell."""
    keys = [plain_text(look(cell, "cell", "key")) for cell in cells]
    columns = [
        (Header("", plain_text(arm)), [look(cell, "arms", arm, "tok_s", "median") for cell in cells])
        for arm in order
    ]
    made = grid("Output tok/s, median over the passes", "cell", keys, [], columns)
    return made and replace(made, bold=frozenset(best(made)))


def best(made: Grid) -> Iterator[tuple[int, int]]:
    """Row and column of the greatest number of each row."""
    for number, row in enumerate(made.rows):
        known = {column: cell for column, cell in enumerate(row.cells) if cell is not None}
        if known:
            yield number, max(known, key=lambda column: known[column])


def cell_grids(cell: Json, order: Sequence[str]) -> list[Grid]:
    """Everything about a cell: throughput, latency, acceptance."""
    arms = arms_of([cell])
    rows = [cell["arms"][arm] for arm in arms]
    made = (
        grid("Throughput", "arm", arms, order, throughput(cell, arms, rows)),
        grid("Passes", "arm", arms, order, passes(rows)),
        grid("Latency, ms", "arm", arms, order, latency(rows)),
        grid("Rounds", "arm", arms, order, rounds(cell, arms, rows)),
    )
    return [each for each in made if each is not None]


def column(group: str, name: str, rows: Sequence[Json], *path: str) -> Reader:
    return Header(group, name), [look(row, *path) for row in rows]


def throughput(cell: Json, arms: Sequence[str], rows: Sequence[Json]) -> Iterator[Reader]:
    ratios = [ratio_of(cell, arm) or {} for arm in arms]
    base = f"to {base_of(cell)}"
    yield column("output tok/s", "total", rows, "tok_s", "median")
    yield column("output tok/s", "a user", rows, "tok_s_user", "median")
    for name in ("ratio", "low", "high"):
        yield Header(base, name, places=3), [row.get(name) for row in ratios]
    yield column(base, "pairs", ratios, "pairs")
    yield column("between passes", "spread", rows, "spread")
    yield column("between passes", "stable", rows, "stable")
    yield column("requests", "all", rows, "requests")
    yield column("requests", "failed", rows, "errors")
    yield column("requests", "good/s", rows, "goodput")
    yield column("GPU", "MiB", rows, "gpu", "memory_mib")
    yield column("GPU", "W", rows, "gpu", "power_w")


def passes(rows: Sequence[Json]) -> Iterator[Reader]:
    yield column("", "passes", rows, "passes")
    yield column("", "output tok/s of each", rows, "tok_s", "values")
    yield column("", "tok/s a user of each", rows, "tok_s_user", "values")


def latency(rows: Sequence[Json]) -> Iterator[Reader]:
    return (column(name, quantile, rows, key, quantile) for name, key in LATENCIES for quantile in QUANTILES)


def rounds(cell: Json, arms: Sequence[str], rows: Sequence[Json]) -> Iterator[Reader]:
    yield column("", "tokens a round", rows, "accept", "mean")
    yield column("", "round ms", rows, "round_ms")
    yield column("", "rounds", rows, "verify_steps")
    counts = pooled([cell])
    for length in range(1, max(map(max, counts.values()), default=0) + 1):
        yield (
            Header("rounds by the tokens they gave", str(length)),
            [counts.get(arm, {}).get(length) for arm in arms],
        )
    depths = [look(row, "accept", "by_depth") or [] for row in rows]
    for depth in range(max(map(len, depths), default=0)):
        yield (
            Header("share of rounds that reached depth", str(depth + 1)),
            [each[depth] if depth < len(each) else None for each in depths],
        )


def lossless_grids(rows: Sequence[Json], order: Sequence[str]) -> list[Grid]:
    """Verdicts, tests of distributions, and where outputs part."""
    names = [str(row.get("arm")) for row in rows]
    parted = [(row, each) for row in rows for each in row.get("divergences") or []]
    tests = dict.fromkeys(key for row in rows for key in row.get("distribution") or {})
    verdicts = [
        *(column("", key, rows, key) for key in ("cell", "samples", "equal", "verdict")),
        *(column("distributions", key, rows, "distribution", key) for key in tests),
        column("", "that is", rows, "words"),
    ]
    places = [
        column("", "cell", [row for row, _ in parted], "cell"),
        *(
            column("", key.replace("_", "-"), [each for _, each in parted], key)
            for key in ("index", "position", "expected", "found", "gap", "near_tie")
        ),
    ]
    made = (
        grid("Output against plain decoding", "arm", names, order, verdicts),
        grid("Where outputs part", "arm", [str(row.get("arm")) for row, _ in parted], order, places),
    )
    return [each for each in made if each is not None]


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested objects, their names dotted; lists of plain values are one leaf."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from leaves(below, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(value, list):
        yield prefix, " ".join(map(str, value))
    elif value is not None:
        yield prefix, value


def fingerprint(value: Json) -> tuple[list[tuple[str, Any]], Grid | None]:
    """What a number was measured under: what is one for all arms, and the settings in which the arms differ."""
    value = dict(value)
    by_arm = {name: value.pop(name) for name in ("flags", "releases") if isinstance(value.get(name), Mapping)}
    arms = sorted({arm for each in by_arm.values() for arm in each if isinstance(each, Mapping)})
    table = {
        arm: dict(pair for name, each in by_arm.items() for pair in leaves(each.get(arm), name))
        for arm in arms
    }
    names = dict.fromkeys(name for each in table.values() for name in each)
    alike = [name for name in names if len({str(table[arm].get(name)) for arm in arms}) == 1]
    common = [*leaves(value), *((name, table[arms[0]][name]) for name in alike)]
    different = [name for name in names if name not in alike]
    columns = [(Header("", plain_text(arm)), [table[arm].get(name) for name in different]) for arm in arms]
    return common, grid("In which the arms differ", "setting", different, [], columns)
