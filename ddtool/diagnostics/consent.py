"""What must hold before a preview is carried out, and after. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from ddtool.errors import Drift, UsageError

Preview = Mapping[str, Any]


def agreed(
    request: Mapping[str, Any], preview: Preview, unit: str, also_affects: Sequence[str]
) -> dict[str, Any]:
    """The request as its transaction has it once the operator says yes to what the preview shows.

    Raises UsageError as `check_affected`.
    """
    check_affected(preview, unit, also_affects)
    return {**request, "confirm_unknown": True} if preview["unknown"] else dict(request)


def check_affected(preview: Preview, unit: str, agreed: Sequence[str]) -> None:
    """Other units that use the same files, running or not, have to be named; loose processes are only warned about.

    Raises UsageError with the option to add.
    """
    if not preview["diffs"]:  # no file that a process loads changes
        return
    known = {unit.removesuffix(".service"), *(name.removesuffix(".service") for name in agreed)}
    others = sorted(
        {name.removesuffix(".service") for name in preview["units"] if not name.startswith("pid ")} - known
    )
    if others:
        raise UsageError(
            f"these use {preview['site']} too, and would load the changed files at their next start: "
            + ", ".join(others),
            hint="add " + " ".join(f"--also-affects {name}" for name in others),
        )


def check_disable(names: Sequence[str], enabled: Sequence[str]) -> None:
    """A name that is neither enabled nor shipped is a typing error. Raises UsageError with the nearest name."""
    if not names:
        return
    # Only `diag disable` gets here, and it takes its time to import.
    from ddtool.diagnostics import definition

    known = sorted({*enabled, *definition.names()})
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"enabled: {', '.join(enabled) or 'none'}"
            raise UsageError(f"there is no diagnostic {name!r}", hint=hint)


def check_as_recorded(state: Mapping[str, Any]) -> None:
    """After a change every managed file has the hash that the ledger names. Raises Drift for those that do not."""
    wrong = [
        f"{item['file']} is {item['state']}"
        for item in state["files"]
        if item["state"] not in ("ours", "baseline")
    ]
    if wrong:
        raise Drift(f"changed by someone else meanwhile: {', '.join(wrong)}", hint="ddtool diag status")
