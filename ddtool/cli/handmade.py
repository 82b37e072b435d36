"""What became of a hand-made unit, for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ddtool.cli import output

if TYPE_CHECKING:
    from ddtool.profile.findings import Finding
    from ddtool.profile.from_unit import FromUnit, Row


def show(made: FromUnit, refused: str | None, findings: list[Finding]) -> None:
    """To stderr: the profile itself may be on stdout."""
    keys = ", ".join(row.what for row in made.carried)
    output.words(f"carried over, {len(made.carried)}: {keys}" if keys else "nothing carried over")
    listed("covered by ddtool's own unit", made.covered)
    listed("NOT carried over", made.left, "yellow")
    for name, where in sorted(made.secrets.items()):
        output.words(f"secret: set {name} before you deploy; on the host its value is in {where}", "yellow")
    for remark in made.remarks:
        output.words(f"note: {remark}", "yellow")
    if refused:
        output.words(f"The profile is not complete yet:\n{refused}", "red")
    for finding in findings:
        output.words(f"{finding.level}: {finding}", "red" if finding.level == "refuse" else "yellow")


def listed(title: str, rows: list[Row], style: str | None = None) -> None:
    if rows:
        output.words(f"{title}:", style)
    for row in rows:
        output.words(f"  {row.what}  ({row.where}): {row.why}", style)


def as_json(made: FromUnit, refused: str | None, findings: list[Finding], usable: bool) -> dict[str, Any]:
    return {
        "unit": made.unit,
        "profile": made.profile,
        "carried": [asdict(row) for row in made.carried],
        "covered": [asdict(row) for row in made.covered],
        "not_carried": [asdict(row) for row in made.left],
        "secrets": made.secrets,
        "remarks": made.remarks,
        "problem": refused,
        "findings": [asdict(finding) for finding in findings],
        "ok": usable,
    }
