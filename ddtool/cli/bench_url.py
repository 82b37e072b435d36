"""`ddtool bench --url`: servers that run already, measured from this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddtool.cli import options, output
from ddtool.cli.bench_again import ARMS_RUN, kept
from ddtool.cli.bench_run import Show, Where, finish, typed_profile

if TYPE_CHECKING:
    from ddtool.bench.passes import Design
    from ddtool.bench.store import Folder
    from ddtool.bench.workloads import Workload
    from ddtool.profile import Profile


def new(
    pairs: Sequence[str],
    workload: Sequence[str],
    wanted: Mapping[str, Any],
    where: Where,
    show: Show,
) -> None:
    """A new run against servers that run already."""
    from ddtool.bench import asked
    from ddtool.bench import by_url as urls

    profile = options.profile_of(where.profile, list(where.overrides)) if where.profile else None
    servers = urls.parse(pairs, api_key_of(profile))
    design, loaded = asked.design(profile, list(servers), workload, **wanted)
    notes = asked.notes(profile, design, loaded)
    said = asked.temperature_said(profile, design, wanted["temperature"])
    if where.dry_run:
        if show.json:
            output.emit("bench.plan", {"plan": design.to_json(), "warnings": notes})
        count = len(design.arms) * len(design.cells) * design.visits * design.repeats
        output.words(f"{count} passes: {', '.join(cell.key for cell in design.cells)}; {said}")
        for note in notes:
            output.words(f"warning: {note}", "yellow")
        return
    folder = urls.prepare(
        servers,
        design,
        loaded,
        list(workload),
        profile=profile.name if profile else None,
        wanted=profile.objective if profile else None,
        warnings=notes,
        how={
            "profile": typed_profile(where.profile, profile) if profile else None,
            "set": list(where.overrides),
        },
    )
    output.words(f"run {folder.path.name}, kept in {folder.path}; {said}")
    measure(servers, folder, design, loaded, show)


def again(pairs: Sequence[str], folder: Folder, design: Design, where: Where, show: Show) -> None:
    """What a run by URL has not measured yet; its servers must be what they were."""
    from ddtool.bench import asked, fingerprint, run
    from ddtool.bench import by_url as urls
    from ddtool.bench.passes import alternating
    from ddtool.errors import UsageError

    ignored = [option for option, given in (("--host", where.host), ("--drain", where.drain)) if given]
    if ignored:
        typed = f"--resume {folder.path.name}"
        raise UsageError(
            f"{typed} would ignore {', '.join(ignored)}", why=ARMS_RUN, hint=f"ddtool bench {typed}"
        )
    profile = options.profile_of(where.profile, list(where.overrides)) if where.profile else None
    servers = urls.parse(pairs, api_key_of(profile))
    loaded = asked.load_all(folder.run["workloads"], profile, design.seed)
    if any(one.ident not in folder.done() for one in alternating(design)):  # a whole run asks nobody
        run.check_same(folder, fingerprint.of_servers(urls.looked(servers), design, loaded))
    if where.dry_run:
        left = len([one for one in alternating(design) if one.ident not in folder.done()])
        if show.json:
            output.emit("bench.plan", {"plan": design.to_json(), "left": left})
        output.words(f"{left} passes of {folder.path.name} are left")
        return
    measure(servers, folder, design, loaded, show)


def api_key_of(profile: Profile | None) -> str | None:
    from ddtool.profile import SecretText, resolve_secrets

    key = profile.service.api_key if profile else None
    return (
        key.resolve(resolve_secrets(profile, os.environ)) if profile and isinstance(key, SecretText) else None
    )


def measure(
    servers: Mapping[str, Any], folder: Folder, design: Design, loaded: Mapping[str, Workload], show: Show
) -> None:
    from ddtool.bench import by_url as urls
    from ddtool.bench.passes import Visit, alternating
    from ddtool.bench.progress import Progress
    from ddtool.cli.bench_progress import Watch
    from ddtool.errors import DdtoolError

    done = folder.done()
    left = [one for one in alternating(design) if one.ident not in done]
    standing = Progress([Visit("", 0, left)] if left else [], 0.0, len(done))
    standing.started()
    try:
        if left:
            with Watch(standing) as watch:
                urls.measure(servers, folder, loaded, watch.event)
    except (DdtoolError, KeyboardInterrupt):
        output.words(kept(folder), "bold")
        raise
    ask = urls.judge(servers, loaded) if design.lossless else None
    finish(folder, show, ask)
