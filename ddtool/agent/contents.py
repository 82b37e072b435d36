"""What releases are made of, for `releases diff`. Secrets leave the host as salted fingerprints only."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Dict, List

from . import disk, releases
from .errors import UsageError
from .registry import Context, op

Json = Dict[str, Any]
META = (
    "created_unix",
    "profile",
    "venv",
    "unit_text",
    "argv",
    "config",
    "wheel",
    "engine",
    "probe",
    "patches",
)
FINGERPRINT = 12


@op("releases.contents")
def contents(ctx: Context, unit_name: str, names: List[str]) -> List[Json]:
    """One object for each name: `id`, `role`, the keys in META (None in a release that did not note them), `secrets`
    {NAME: fingerprint}, `secret_env` [NAME], `engine_files` {path: sha256}."""
    listed = releases.listing(ctx, unit_name)
    return [_contents(ctx, unit_name, _find(listed, name)) for name in names]


def _find(listed: List[Json], name: str) -> Json:
    """A release by its id, the beginning of it, or its role."""
    found = [item for item in listed if item["role"] == name] or [
        item for item in listed if item["id"].startswith(name)
    ]
    if len(found) != 1:
        kept = ", ".join(f"{item['id']}" + (f" ({item['role']})" if item["role"] else "") for item in listed)
        what = "no release" if not found else "more than one release"
        raise UsageError(f"{what} is {name}", hint=f"kept on the host: {kept or 'none'}")
    return found[0]


def _contents(ctx: Context, unit_name: str, about: Json) -> Json:
    folder = releases.folder(ctx, unit_name, about["id"])
    salt = releases.salt(ctx).encode()
    secrets = {
        name: hmac.new(salt, value.encode(), hashlib.sha256).hexdigest()[:FINGERPRINT]
        for name, value in releases.read_json(folder / "secrets.json").items()
    }
    environment = folder / "env"
    rows = environment.read_text().splitlines() if environment.exists() else []
    engine = folder / "engine"
    return {
        "id": about["id"],
        "role": about["role"],
        **{key: about.get(key) for key in META},
        "secrets": secrets,
        "secret_env": sorted(row.partition("=")[0] for row in rows),
        "engine_files": {
            path.relative_to(engine).as_posix(): disk.digest(path)
            for path in sorted(engine.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        },
    }
