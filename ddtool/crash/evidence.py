"""The verdict about a bundle: its log, and what the rest of it says about the run."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddtool.agent.journal_entries import SCHEMA
from ddtool.crash import hang
from ddtool.crash.bundle import INSTALLATION, JOURNAL, PROFILE, Bundle
from ddtool.errors import ProfileError

if TYPE_CHECKING:
    from ddtool.crash.classify import Context
    from ddtool.crash.model import Verdict
    from ddtool.profile import Profile

END_WORDS = (b": Main process exited, ", b": Failed with result ")
DRIFT_MOST = 5  # files named in a verdict
NO_FAILURE = (hang.GATE, hang.RUNNING, "success")  # results that systemd does not call one

Json = dict[str, Any]


def classify(bundle: Bundle, profile: Profile | None = None) -> Verdict:
    """The verdict about the run in a bundle, read with `profile` or the one that lies in it."""
    from ddtool.crash.classify import classify as classify_stream

    context = context_of(profile or profile_of(bundle), bundle)
    verdict = classify_stream(io.BytesIO(bundle.files.get(JOURNAL, b"") + last_word(bundle)), context)
    # The journal of a bundle holds the kernel's lines too: where there are none, there were none.
    missing = tuple(item for item in verdict.missing if not item.startswith("the kernel log"))
    verdict = replace(verdict, missing=missing)
    return hang.with_stacks(verdict, bundle) if context.hang_phase else verdict


def context_of(profile: Profile | None, bundle: Bundle | None = None) -> Context:
    """What a verdict may know beside the log: the profile's numbers, what was patched, and whether it hung."""
    from ddtool.crash.classify import Context
    from ddtool.crash.numbers import Numbers, of_profile

    known = of_profile(profile) if profile else Numbers()
    if bundle is None:
        return Context(known)
    installation = bundle.json(INSTALLATION)
    managed = installation.get("diagnostics") or {}
    return Context(
        known,
        diagnostics=[patch["name"] for patch in managed.get("patches", []) if patch.get("on_disk")],
        drift=list(drift(installation)),
        outcome=outcome_of(bundle.manifest),
        hang_phase=hang.phase(bundle) if hang.hung(bundle.manifest) else None,
    )


def last_word(bundle: Bundle) -> bytes:
    """A record of how systemd ended the run, where the journal of the evidence does not have it.

    A run that floods the journal writes on after its own end, and may push systemd's lines out of what is kept.
    """
    manifest, journal = bundle.manifest, bundle.files.get(JOURNAL, b"")
    if manifest.get("result") in NO_FAILURE or any(said in journal for said in END_WORDS):
        return b""
    record = dict.fromkeys(("seq", "cursor", "rank", "level")) | {
        "schema": SCHEMA,
        "boot": manifest.get("boot"),
        "unix_us": int(manifest.get("unix", 0) * 1e6),
        "source": "pid1",
        "pid": 1,
        "text": f"{manifest.get('unit')}.service: Failed with result '{manifest.get('result')}'.",
    }
    return json.dumps(record).encode() + b"\n"


def outcome_of(manifest: Json) -> str | None:
    """What `diag run` made of this run."""
    found = re.match(r"diag run \S+: (.+)", str(manifest.get("why")))
    return found[1] if found else None


def drift(installation: Json) -> Iterator[str]:
    """Files of the installed SGLang that are neither the wheel's nor ours, one phrase each."""
    managed = {
        item["file"]: item["state"] for item in (installation.get("diagnostics") or {}).get("files", [])
    }
    for name, state in managed.items():
        if state in ("foreign", "missing", "lost-by-upgrade"):
            yield f"{name} is {state}"
    wheel = installation.get("sglang") or {}
    for kind in ("modified", "missing"):
        names = [name for name in wheel.get(kind, []) if name not in managed]
        shown = ", ".join(names[:DRIFT_MOST]) + (
            f" and {len(names) - DRIFT_MOST} more" if names[DRIFT_MOST:] else ""
        )
        if names:
            yield f"{kind} since the wheel: {shown}"


def profile_of(bundle: Bundle) -> Profile | None:
    """The profile in a bundle; None when there is none, or when this ddtool's schema does not allow it any more."""
    if PROFILE not in bundle.files:
        return None
    import tempfile

    from ddtool.profile import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, PROFILE)
        path.write_bytes(bundle.files[PROFILE])
        try:
            return load(str(path))
        except ProfileError:
            return None


def profile_text(profile: Profile) -> str:
    """The merged profile as YAML; secrets stay `${env:NAME}`."""
    import yaml

    from ddtool.profile.report import merged

    return yaml.safe_dump(merged(profile), sort_keys=False, allow_unicode=True)
