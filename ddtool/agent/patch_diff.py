"""What a patch would change, as a diff for the operator's own repository; reads only."""

from __future__ import annotations

import base64
from typing import Any, Dict, List, Optional, Tuple

from . import ledger, objects
from .compose import compose
from .errors import Drift, UsageError
from .managed import Managed, patch_of
from .registry import Context, op
from .restore import BASELINE, WHEEL
from .toggle import files_of, refuse_absent

Json = Dict[str, Any]


@op("diag.diff")
def diff(ctx: Context, venv: str, definition: Json, against: str = BASELINE) -> Json:
    """`{site, version, files: [{file, against, diff: base64}], unknown}`; files that the patch leaves alone are absent.

    `against`: `baseline` (each file's recorded one, else the wheel's bytes, else what lies there), `wheel`, or an
    adopted baseline's name. Raises UsageError when the patch does not fit or there is no such baseline, Drift when
    the wheel's bytes are not on this host.
    """
    managed = Managed(ctx, venv)
    bases = {file: _base(managed, file, against) for file in sorted(files_of(managed, definition))}
    jobs = [(file, content, [definition]) for file, (_, content) in bases.items()]
    try:
        results = compose(venv, jobs, managed.install.version)
    except UsageError:
        refuse_absent(managed.install.dist, managed.install.version, [definition])
        raise
    files: List[Json] = []
    unknown: List[Json] = []
    for (file, content, _), composed in zip(jobs, results):  # noqa: B905
        unknown += composed.unknown
        if composed.patches:
            text = base64.b64encode(patch_of(content, composed.content, file)).decode()
            files.append({"file": file, "against": bases[file][0], "diff": text})
    return {
        "site": str(managed.install.root),
        "version": managed.install.version,
        "files": files,
        "unknown": unknown,
    }


def _base(managed: Managed, file: str, against: str) -> Tuple[str, bytes]:
    """(what it is called, its bytes)."""
    install, entry = managed.install, managed.ledger.files.get(file)
    wheel = f"wheel:{install.dist}-{install.version}"
    if against == WHEEL:
        return wheel, _wheels(managed, file)
    if against != BASELINE:
        return f"adopted:{against}", _adopted(managed, file, against)
    if entry is not None and not ledger.upgraded(install, entry, file):
        return entry["baseline"]["id"], objects.get(managed.ctx, entry["baseline"]["sha"])
    if managed.found(file) == install.record.get(file):
        return wheel, managed.content(file)
    return "the file as it is, which is no baseline", managed.content(file)


def _wheels(managed: Managed, file: str) -> bytes:
    clean: Optional[bytes] = managed.clean(file)
    if clean is None:
        raise Drift(
            f"the wheel's bytes are not on this host: {file}",
            "`--against FILE.whl` reads the wheel on this machine, without the host",
        )
    return clean


def _adopted(managed: Managed, file: str, name: str) -> bytes:
    known = managed.ledger.baselines.get(name)
    if known is None:
        names = ", ".join([BASELINE, WHEEL, *sorted(managed.ledger.baselines)])
        raise UsageError(
            f"there is no baseline {name!r} on this host", f"known: {names}; or ./FOLDER or FILE.whl"
        )
    if file in known["files"]:
        return objects.get(managed.ctx, known["files"][file])
    return _wheels(managed, file)
