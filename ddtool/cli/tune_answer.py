"""The answer of `ddtool tune`: tables or JSON, a report, and a profile with the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddtool.cli import bench_files, output

if TYPE_CHECKING:
    from ddtool.bench.store import Folder
    from ddtool.bench.tune.found import Found
    from ddtool.bench.tune.predict import Load
    from ddtool.bench.tune.recommend import Choice
    from ddtool.cli.bench_run import Show
    from ddtool.profile import Profile

Json = dict[str, Any]


def give(
    found: Found, fit: Folder, second: Folder | None, profile: Profile | None, show: Show, out: str | None
) -> None:
    """The answer: as tables or JSON, as a report, as an overlay."""
    from ddtool.bench.passes import Design
    from ddtool.bench.report import html, tables
    from ddtool.bench.tune import answer, reading
    from ddtool.bench.tune.found import choice, main_load

    load = main_load(found, Design.from_json(fit.run["plan"]))
    chosen = choice(found, load)
    overlay = overlay_of(found, chosen, load, fit, profile, out)
    told = answer.answer(found, reading.about(fit, second), chosen, load, overlay)
    again = f"ddtool tune --from {fit.path.name}, with another FILE"
    # Files before the answer: with --json one object is all of stdout, an error's as well.
    if out:
        bench_files.write(out, overlay, again)
        _checked(out)
    if show.report:
        bench_files.write(show.report, html(_result(second or fit), told), again)
        output.words(f"report: {show.report}")
    if show.json:
        output.emit("tune", {name: value for name, value in told.items() if name != "schema"})
    else:
        for one in tables(told):
            output.stdout().print(one)


def _result(folder: Folder) -> Json:
    """Of the run beside the answer, as `bench` would give it; the traced pass is no arm."""
    from ddtool.bench import results
    from ddtool.bench.tune.reading import measured_lines

    return results.summarise(folder.run, measured_lines(folder))


def overlay_of(
    found: Found, chosen: Choice, load: Load, fit: Folder, profile: Profile | None, out: str | None
) -> str:
    """Empty without a profile."""
    from ddtool.bench.tune import overlay

    if profile is None:
        return ""
    rates = found.rates(found.verified, load)
    about = fit.run
    source = f"ddtool tune, run {about['run']} of {about['created']} on {about['host']}"
    evidence = [
        f"{chosen.why}.",
        f"{source}; workload {load.workload}, {load.concurrency} at a time.",
        *(
            f"  {found.name(shape)}: {' '.join(f'{value:.1f}' for value in values)} tok/s"
            for shape, values in sorted(rates.items())
        ),
        *([] if rates else ["Predicted only: it was not run against its neighbours."]),
    ]
    return overlay.text(profile, chosen.shape, evidence, Path(out) if out else None)


def _checked(out: str) -> None:
    """Say what `profile validate` will."""
    from ddtool.profile import load
    from ddtool.profile.validate import require_valid

    require_valid(load(out if "/" in out else f"./{out}"))
    hint = f"ddtool deploy {out} --host … (or: ddtool profile bind {Path(out).stem} HOST)"
    output.words(f"wrote {out}, a valid profile; next: {hint}")
