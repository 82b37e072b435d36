"""What a deploy puts on the host: the release's files, and a digest by which the same release is recognised.

The digest covers whatever would make the service behave differently: unit, SGLang's configuration, environment, the
engine's and the probe's bytes, the wheel, and a salted fingerprint of each secret. Not the command line tool's own
version: a new ddtool restarts nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddtool.engine import engine_files, engine_id
from ddtool.probe import probe_files
from ddtool.profile import Profile
from ddtool.profile.launch import RELEASE, argv, config_text, public_config, secret_environment
from ddtool.profile.systemd import environment_file
from ddtool.profile.unit import unit_text


@dataclass(frozen=True)
class Release:
    """`files`: path inside the release folder → bytes. `@RELEASE@` in a text stands for that folder."""

    digest: str
    unit_text: str
    files: dict[str, bytes]
    secrets: dict[str, str]
    meta: dict[str, Any]


def build_release(profile: Profile, secrets: Mapping[str, str], salt: str, wheel: str | None) -> Release:
    """Pure. `wheel` identifies the installed SGLang (version and RECORD's hash), None when it is not known."""
    unit = unit_text(profile)
    plugin = profile.engine.provider == "plugin"
    probe, engine = probe_files(), engine_files() if plugin else {}
    shown = {
        "argv": argv(profile),
        "config": public_config(profile),
        "wheel": wheel,
        "engine": engine_id() if plugin else None,
        "probe": tree_digest(probe)[:12],
    }
    identity = {
        **shown,
        "unit": unit,
        "secrets": {name: fingerprint(salt, value) for name, value in secrets.items()},
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    files = {
        "config.yaml": config_text(profile, secrets).encode(),
        "env": environment_file(secret_environment(profile, secrets)).encode(),
        **{f"probe/{path}": data for path, data in probe.items()},
        **{f"engine/{path}": data for path, data in engine.items()},
    }
    meta = {
        "schema": "ddtool.release/1",
        **shown,
        "digest": digest,
        "unit_text": unit,
        "profile": profile.name,
        "venv": profile.engine.venv,
        "provider": profile.engine.provider,
        "algorithm": profile.speculative.algorithm,
        "gate": gate_spec(profile),
        "stop_s": profile.service.deadlines.stop_s,
    }
    return Release(digest, unit, files, dict(secrets), meta)


def gate_spec(profile: Profile) -> dict[str, Any]:
    """What the gate on the host asks of the service (ddtool.agent.gate)."""
    key = profile.service.api_key
    return {
        "address": reachable_at(profile.service.bind),
        "port": profile.service.port,
        "api_key": None if key is None else str(key),  # the reference; the host has the value
        "start_s": profile.service.deadlines.start_s,
        "request_s": profile.service.deadlines.request_s,
        "prompts": profile.health.prompts,
        "serial": profile.health.serial,
        "concurrent": profile.health.concurrent,
        "deadline_s": profile.health.deadline_s,
        "max_new_tokens": profile.health.max_tokens,
        "accept_length_floor": profile.health.accept_length_floor,
        "speculative": profile.speculative.algorithm != "NONE",
        "graphs": profile.graphs.enabled,
    }


def reachable_at(bind: str) -> str:
    """An address on the host itself at which a service bound to `bind` answers."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(bind, bind)  # noqa: S104


def tree_digest(files: Mapping[str, bytes]) -> str:
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path}\0{hashlib.sha256(files[path]).hexdigest()}\n".encode())
    return total.hexdigest()


def fingerprint(salt: str, secret: str) -> str:
    """Tells whether a secret changed without keeping it: salted per host."""
    return hmac.new(salt.encode(), secret.encode(), hashlib.sha256).hexdigest()


def release_step(
    release: Release,
    ident: str,
    folder: str,
    salt: str,
    created_unix: float,
    patches: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The transaction step that writes the release to `folder` on the host. `patches`: on in its venv as it is made."""
    return {
        "step": "release",
        "id": ident,
        "salt": salt,
        "files": [
            {
                "path": path,
                "content": base64.b64encode(data.replace(RELEASE.encode(), folder.encode())).decode(),
                "mode": 0o600,
            }
            for path, data in sorted(release.files.items())
        ],
        "meta": {
            **release.meta,
            "id": ident,
            "created_unix": round(created_unix, 3),
            "patches": [{"name": patch["name"], "sha": patch["sha"]} for patch in patches],
            "unit_sha256": hashlib.sha256(release.unit_text.replace(RELEASE, folder).encode()).hexdigest(),
        },
        "secrets": release.secrets,
    }


def service_record(unit: str, profile: str, current: str, previous: str | None) -> dict[str, Any]:
    """The host's `service.json`: which release is the unit's, and which one `rollback` goes back to."""
    return {
        "schema": "ddtool.service/1",
        "unit": unit,
        "profile": profile,
        "current": current,
        "previous": previous,
    }
