"""Profile → how SGLang is started: argument vector, its config file, its environment. Pure.

Flags travel in the config file, which is root-only: an argument vector is world-readable in /proc, and so is
a unit's `Environment=` through `systemctl show`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from ddtool.errors import ProfileError
from ddtool.profile.schema import Profile
from ddtool.profile.secrets import SecretText

RELEASE = "@RELEASE@"  # stands for the release's folder until there is one


def argv(profile: Profile, release: str = RELEASE) -> list[str]:
    """The command of the service. Holds no secret and nothing that two releases of one venv differ in."""
    return [
        profile.engine.interpreter,
        "-m",
        "sglang.launch_server",
        "--config",
        f"{release}/config.yaml",
    ]


def flags(profile: Profile) -> dict[str, Any]:
    """Every SGLang flag of the profile, sections first, secrets still as SecretText; None appears nowhere."""
    service, graphs = profile.service, profile.graphs
    result: dict[str, Any] = {
        "model-path": profile.model.path,
        "served-model-name": profile.model.name,
        "host": service.bind,
        "port": service.port,
        "tp-size": profile.parallel.tp,
        "attention-backend": profile.attention_backend,
    }
    if service.api_key is not None:
        result["api-key"] = service.api_key
    result.update(_speculative_flags(profile))
    if not graphs.enabled:
        result["disable-cuda-graph"] = True
    elif graphs.bs is not None:
        result["cuda-graph-bs"] = graphs.bs
    elif graphs.max_bs is not None:
        result["cuda-graph-max-bs"] = graphs.max_bs
    return {**result, **profile.server_args}


def _speculative_flags(profile: Profile) -> dict[str, Any]:
    spec = profile.speculative
    if spec.algorithm == "NONE":
        return {}
    assert profile.drafter is not None  # the schema requires it
    result: dict[str, Any] = {
        "speculative-algorithm": spec.algorithm,
        "speculative-draft-model-path": profile.drafter.path,
        # Unset, the drafter inherits a backend meant for the target, which for MLA targets cannot run it.
        "speculative-draft-attention-backend": profile.attention_backend,
    }
    if spec.algorithm == "DFLASH":
        result["speculative-num-draft-tokens"] = spec.block_size
    elif profile.engine.provider == "plugin":
        assert spec.budget is not None
        result["speculative-num-draft-tokens"] = spec.budget + 1
        result["speculative-dflash-block-size"] = spec.block_size
        result["speculative-ddtree-budget"] = spec.budget
        result["speculative-ddtree-topk"] = spec.topk
    return result


def config_file(profile: Profile, secrets: Mapping[str, str]) -> dict[str, Any]:
    """What SGLang's `--config` file says. `secrets` is `resolve_secrets`' answer; the file must be 0600.

    SGLang turns each entry into command line arguments: lists into several values, the rest through `str`, so
    a mapping is sent as the JSON text that its flag parses. ProfileError for text that reads like an option.
    """
    result: dict[str, Any] = {}
    for name, value in flags(profile).items():
        if isinstance(value, SecretText):
            value = value.resolve(secrets)
        elif isinstance(value, dict):
            value = json.dumps(value, sort_keys=True)
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and text.startswith("-") for text in texts):
            raise ProfileError(f"the value of --{name} starts with a dash: SGLang would read it as an option")
        result[name] = value
    return result


def config_text(profile: Profile, secrets: Mapping[str, str]) -> str:
    """`config_file` as the YAML that is written."""
    return yaml.safe_dump(config_file(profile, secrets), sort_keys=False, allow_unicode=True)


def public_config(profile: Profile) -> dict[str, Any]:
    """`config_file` with references in place of secrets: for plans, diffs and `profile show`."""
    return config_file(profile, {name: f"${{env:{name}}}" for name in _secret_names(profile)})


def _secret_names(profile: Profile) -> set[str]:
    return {name for text in profile.secret_texts for name in text.names}


def public_environment(profile: Profile, release: str = RELEASE) -> dict[str, str]:
    """The service's environment without secrets; it stands in the unit, where a plan's diff shows it.

    The release's own folders come first on PYTHONPATH: the engine is loaded from there, never installed.
    """
    folders = [f"{release}/engine"] if profile.engine.provider == "plugin" else []
    folders.append(f"{release}/probe")
    own = profile.env.get("PYTHONPATH")
    if isinstance(own, str) and own:
        folders.append(own)
    # A unit without User= gets no HOME, and CUDA, triton and torch keep their caches below it.
    result = {"HOME": "/root", "DDTOOL_UNIT": profile.service.unit}
    result.update({name: value for name, value in profile.env.items() if isinstance(value, str)})
    result["PYTHONPATH"] = ":".join(folders)
    return result


def secret_environment(profile: Profile, secrets: Mapping[str, str]) -> dict[str, str]:
    """The variables with a secret in them; they go to the release's `env` file, 0600."""
    return {
        name: value.resolve(secrets) for name, value in profile.env.items() if isinstance(value, SecretText)
    }


def environment(profile: Profile, secrets: Mapping[str, str], release: str = RELEASE) -> dict[str, str]:
    """The whole environment that the service sees, for runs without systemd. Holds secrets."""
    return {**public_environment(profile, release), **secret_environment(profile, secrets)}
