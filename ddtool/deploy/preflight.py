"""What makes a deploy impossible or doubtful, told from facts before anything on the host is touched. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ddtool.engine import PACKAGE as ENGINE_PACKAGE
from ddtool.engine import RELEASES as ENGINE_RELEASES
from ddtool.engine import engine_id
from ddtool.errors import PreflightError
from ddtool.profile import Profile

SHM_WANTED_MIB = 512
SKEW_S = 2.0
FREE_MIB = 200


@dataclass(frozen=True)
class Check:
    """One line of `doctor`: what was looked at, how it is, and what to do about it."""

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str
    hint: str | None = None


def check_all(profile: Profile, facts: Mapping[str, Any], now_unix: float) -> list[Check]:
    """Every check, in the order in which `doctor` prints them."""
    return [
        *host(facts, now_unix),
        *gpus(profile, facts),
        *venv(profile, facts),
        *provider(profile, facts),
        *pair(profile, facts),
        *port(profile, facts),
        *transactions(facts),
    ]


def failures(checks: Iterable[Check]) -> list[Check]:
    return [check for check in checks if check.state == "fail"]


def require(checks: Iterable[Check], host: str, what: str) -> None:
    """Raises PreflightError with all that keeps `host` from running `what`."""
    if failed := failures(checks):
        raise PreflightError(
            f"{host} cannot run {what}: " + "; ".join(f"{check.name}: {check.detail}" for check in failed),
            why="nothing was touched",
            hint=failed[0].hint,
        )


def host(facts: Mapping[str, Any], now_unix: float) -> Iterator[Check]:
    about = facts["host"]
    words = f"{about['hostname']}: {about['os']}, kernel {about['kernel']}, {about['memory_mib'] >> 10} GiB"
    yield Check("host", "ok", words)
    if not about["systemd"]:
        yield Check(
            "systemd", "fail", "this host does not run systemd", "deploy to a host that boots systemd"
        )
    if about["state_free_mib"] < FREE_MIB:
        hint = f"free at least {FREE_MIB} MiB: releases, evidence and undo copies are kept there"
        yield Check("disk", "fail", f"{about['state_free_mib']} MiB free where /var/lib/ddtool lies", hint)
    if about["shm_free_mib"] < SHM_WANTED_MIB:
        hint = "clear /dev/shm of segments that dead runs left, or mount it larger"
        yield Check("shm", "warn", f"{about['shm_free_mib']} MiB free of {about['shm_total_mib']}", hint)
    if not about["persistent_journal"]:
        hint = "mkdir /var/log/journal and restart systemd-journald"
        yield Check(
            "journal", "warn", "kept in memory only: crashes before a reboot cannot be explained", hint
        )
    skew = about["unix"] - now_unix
    if abs(skew) > SKEW_S:
        yield Check(
            "clock",
            "warn",
            f"the host's clock is {skew:+.0f} s off this machine's",
            "check its time synchronisation",
        )


def gpus(profile: Profile, facts: Mapping[str, Any]) -> Iterator[Check]:
    cards = facts["gpus"]
    if profile.flag("device") == "cpu":
        yield Check("gpu", "ok", "the profile runs on the CPU")
        return
    if not cards:
        yield Check(
            "gpu",
            "fail",
            "nvidia-smi is missing or shows no GPU",
            "install the driver, or see what `nvidia-smi` says",
        )
        return
    names = ", ".join(sorted({card["name"] for card in cards}))
    yield Check("gpu", "ok", f"{len(cards)} × {names}, driver {cards[0]['driver']}")
    if len(cards) < profile.parallel.tp:
        yield Check(
            "gpu",
            "fail",
            f"tp {profile.parallel.tp} needs as many GPUs; there are {len(cards)}",
            "--set parallel.tp=N",
        )


def venv(profile: Profile, facts: Mapping[str, Any]) -> Iterator[Check]:
    about = facts["venv"]
    if not about["exists"] and profile.engine.install == "managed":
        return  # what stands in the way of making it is `installs.checks`' question
    if not about["exists"]:
        yield Check(
            "venv", "fail", f"no Python environment at {about['path']}", "--set engine.venv=/path/on/the/host"
        )
        return
    others = about.get("others_may_write")
    if others:
        yield Check(
            "venv",
            "warn",
            f"root runs what others than root may change: {', '.join(others)}",
            f"whoever that is becomes root here; if they should not: chown -R root: {about['path']}",
        )
    version = about["dists"].get("sglang")
    if version is None:
        yield Check("venv", "fail", f"{about['path']} has no sglang", "--set engine.venv=/path/on/the/host")
        return
    torch = about["dists"].get("torch", "missing")
    yield Check("venv", "ok", f"Python {about['python']}, sglang {version}, torch {torch}")
    if version != profile.engine.release:
        hint = f"--set engine.release={version}, after reading that release's notes"
        yield Check(
            "sglang", "fail", f"the profile is for {profile.engine.release}; the host has {version}", hint
        )
    wheel = about["sglang"]
    if wheel["unmanaged"]:
        yield Check(
            "wheel",
            "warn",
            f"not verifiable: {wheel['unmanaged']}",
            "`ddtool baseline adopt NAME` records what is there as clean",
        )
    elif wheel["modified"] or wheel["missing"]:
        count = len(wheel["modified"]) + len(wheel["missing"])
        some = ", ".join([*wheel["modified"], *wheel["missing"]][:3])
        yield Check(
            "wheel",
            "warn",
            f"{count} files differ from the wheel: {some}{' …' if count > 3 else ''}",
            "`ddtool baseline show`",
        )
    else:
        yield Check("wheel", "ok", f"{wheel['files']} files as in the wheel, by sha256")
    for item in about["standins"]:
        yield Check("stand-in", "warn", f"{item['name']}: {item['why']}")


def provider(profile: Profile, facts: Mapping[str, Any]) -> Iterator[Check]:
    """Who answers the algorithm: the installed SGLang's enum is asked, since its member would win over a plugin."""
    algorithm, kind = profile.speculative.algorithm, profile.engine.provider
    known = facts["venv"].get("algorithms")
    if algorithm == "NONE":
        return
    if kind == "plugin":
        if known is not None and algorithm in known:
            detail = (
                f"plugin, but the installed SGLang has {algorithm} built in, and its own would silently win"
            )
            hint = "--set engine.provider=builtin, or point engine.venv at a stock SGLang"
            yield Check("provider", "fail", detail, hint)
        elif profile.engine.release not in ENGINE_RELEASES:
            detail = f"plugin: ddtool's engine is made for sglang {', '.join(ENGINE_RELEASES)}"
            yield Check(
                "provider", "fail", detail, "install one of them, or use an SGLang that has it: builtin"
            )
        else:
            yield Check("provider", "ok", f"ddtool's engine {engine_id()} answers {algorithm}")
    elif known is not None and algorithm not in known:
        detail = f"builtin, but the installed SGLang has no {algorithm} (it has {', '.join(known)})"
        yield Check("provider", "fail", detail, "point engine.venv at an SGLang that has it")
    elif known is not None:
        yield Check("provider", "ok", f"the installed SGLang answers {algorithm}")


def engine_answers(answer: Mapping[str, Any]) -> Check:
    """What a child process of the host's venv found when it loaded the engine as SGLang would."""
    if answer["error"] is None and str(answer["provider"]).startswith(ENGINE_PACKAGE):
        return Check(
            "engine", "ok", f"engine {answer['engine']} answers in sglang {answer['sglang']}, asked of it"
        )
    detail = f"DDTREE is answered by {answer['provider'] or 'nobody'}: {answer['error'] or 'the plugin did not load'}"
    return Check("engine", "fail", detail, "point engine.venv at a stock SGLang that the engine is made for")


def pair(profile: Profile, facts: Mapping[str, Any]) -> Iterator[Check]:
    target = facts["model"]
    yield from checkpoint("model", target, "model.path")
    drafter = facts["drafter"]
    if drafter is None or profile.drafter is None:
        return
    yield from checkpoint("drafter", drafter, "drafter.path")
    if target["config"] and drafter["config"]:
        yield from pair_fits(profile, target["config"], drafter["config"])


def checkpoint(name: str, about: Mapping[str, Any], key: str) -> Iterator[Check]:
    if not about["exists"]:
        yield Check(
            name, "fail", f"there is no {about['path']} on the host", f"--set {key}=/path/on/the/host"
        )
    elif about["missing"]:
        missing = ", ".join(about["missing"][:3])
        yield Check(
            name,
            "fail",
            f"{about['path']} lacks {missing}",
            "copy the missing files; ddtool never uploads weights",
        )
    else:
        yield Check(name, "ok", f"{about['path']}, {about['bytes'] / 2**30:.2f} GiB")


def pair_fits(profile: Profile, target: Mapping[str, Any], drafter: Mapping[str, Any]) -> Iterator[Check]:
    """Target and drafter must agree in hidden size, vocabulary, taps and block."""
    target = target.get("text_config", target)
    taps = drafter.get("dflash_config", {}).get("target_layer_ids", [])
    problems = [
        f"{what}: target {target.get(key)}, drafter {drafter.get(key)}"
        for what, key in (("hidden size", "hidden_size"), ("vocabulary", "vocab_size"))
        if key in target and key in drafter and target[key] != drafter[key]
    ]
    layers = target.get("num_hidden_layers")
    if layers is not None and any(tap >= layers for tap in taps):
        problems.append(f"taps {taps} of a target with {layers} layers")
    if layers is not None and drafter.get("num_target_layers", layers) != layers:
        problems.append(f"made for a target of {drafter['num_target_layers']} layers, this one has {layers}")
    block = drafter.get("block_size")
    if block is not None and block != profile.speculative.block_size:
        problems.append(f"block: profile {profile.speculative.block_size}, drafter {block}")
    heads = drafter.get("num_attention_heads")
    if heads is not None and heads % profile.parallel.tp:
        problems.append(f"the drafter's {heads} heads do not divide by tp {profile.parallel.tp}")
    if problems:
        yield Check("pair", "fail", "; ".join(problems), "use the drafter that was trained for this target")
    else:
        yield Check("pair", "ok", f"drafter fits the target, block {block}, taps {taps}")


def port(profile: Profile, facts: Mapping[str, Any]) -> Iterator[Check]:
    about = facts["port"]
    ours = {item["pid"] for item in facts["service"]["unit"].get("processes", [])}
    if about["free"] or about["pid"] in ours:
        yield Check("port", "ok", f"{about['port']} is {'free' if about['free'] else 'ours'}")
        return
    who = f"pid {about['pid']} ({about['title']})" if about["pid"] else "another process"
    yield Check(
        "port", "fail", f"{about['port']} is taken by {who}", "stop it, or --set service.port=ANOTHER"
    )


def transactions(facts: Mapping[str, Any]) -> Iterator[Check]:
    for dead in facts["transactions"]["dead"]:
        detail = f"an earlier {dead['kind']} of {dead['unit']} by {dead['who']} was killed half-way"
        yield Check("transaction", "warn", detail, "the next changing command settles it first")
