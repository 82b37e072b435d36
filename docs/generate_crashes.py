"""Write docs/crashes/ and the compiled form from crash_signatures/; a test checks both.

`python docs/generate_crashes.py`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ddtool.crash.signatures import COMPILED, Catalogue, Category, Signature, compiled_form, of_files, parse

ROOT = Path(__file__).parent.parent
SIGNATURES = ROOT / "crash_signatures"
PAGES = ROOT / "docs" / "crashes"
CASES = ROOT / "tests" / "data" / "crash_cases"
EXAMPLES_MOST = 6
EXAMPLE_LENGTH = 160


def sources() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(SIGNATURES.glob("*.yaml"))}


def examples() -> dict[str, list[str]]:
    """First-cause lines of the labelled cases, by category."""
    found: dict[str, list[str]] = {}
    for path in sorted(CASES.glob("*.yaml")):
        case: dict[str, Any] = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
        if case["first_cause_lineno"]:
            found.setdefault(case["category"], []).append(case["first_cause_line"].strip())
    return found


def pages() -> dict[str, str]:
    """File name in docs/crashes -> text."""
    catalogue = of_files(parse(sources()))
    seen = examples()
    made = {
        f"{name}.md": page(category, catalogue, seen.get(name, []))
        for name, category in catalogue.categories.items()
    }
    return {"README.md": index(catalogue), **made}


def index(catalogue: Catalogue) -> str:
    lines = [
        "# Crash categories",
        "",
        "Generated from `crash_signatures/` by `docs/generate_crashes.py`; do not edit. How often verdicts are",
        "right is in [crash-accuracy.md](../crash-accuracy.md).",
    ]
    layer = ""
    for name, category in catalogue.categories.items():
        if category.layer != layer:
            layer = category.layer
            lines += ["", f"## {layer}", "", "| category | meaning |", "|---|---|"]
        lines.append(f"| [`{name}`]({name}.md) | {cell(category.meaning)} |")
    return "\n".join(lines) + "\n"


def page(category: Category, catalogue: Catalogue, seen: list[str]) -> str:
    own = [each for each in catalogue.signatures if each.category == category.name]
    lines = [
        f"# `{category.name}`",
        "",
        f"Layer: {category.layer}. Generated from `crash_signatures/`; do not edit.",
        "",
        category.meaning,
        "",
        f"Usually: {category.remedy} Next: `{category.next}`.",
    ]
    if seen:
        shown = list(dict.fromkeys(line[:EXAMPLE_LENGTH] for line in seen))[:EXAMPLES_MOST]
        lines += ["", "## How it looks", "", "First-cause lines of labelled logs:", "", "```", *shown, "```"]
    if own:
        lines += ["", "## What to do"]
    for each in own:
        lines += ["", *section(each)]
    return "\n".join(lines) + "\n"


def section(signature: Signature) -> Iterator[str]:
    yield f"### {signature.id}"
    yield ""
    yield shown(signature.cause)
    yield ""
    yield f"{signature.remedy}{f' Next: `{signature.next}`.' if signature.next else ''}"
    yield ""
    codes = dict.fromkeys([*(each.subcode for each in signature.subcodes), signature.subcode or ""])
    yield f"Sub-codes: {', '.join(f'`{code}`' for code in codes if code)}. Confidence: {signature.confidence}."
    if signature.missing:
        yield f"Collect also: {'; '.join(signature.missing)}."
    for loss in signature.loss:
        sentences = " or ".join(f"“{shown(said)}”" for said in (loss.silent, loss.named) if said)
        yield from ("", f"Where it is clear which rank that is: {sentences} Next: `{shown(loss.next)}`.")
    yield from ("",) if signature.loss else ()
    yield "It is looked for as:"
    yield ""
    yield from ("```", *signature.match, "```")


def shown(sentence: str) -> str:
    return sentence.replace("{line}", "…").replace("{", "<").replace("}", ">")


def cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    wanted = pages()
    for path in PAGES.glob("*.md"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (PAGES / name).write_text(text)
    (SIGNATURES / COMPILED).write_text(compiled_form(sources()))
