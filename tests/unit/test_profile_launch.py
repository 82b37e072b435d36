"""What a release is made of: config file, environment, unit. Nothing secret where others can read it."""

from __future__ import annotations

import shlex
import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ddtool.errors import ProfileError
from ddtool.profile import load, resolve_secrets, systemd
from ddtool.profile.launch import (
    argv,
    config_file,
    config_text,
    environment,
    public_config,
    public_environment,
    secret_environment,
)
from ddtool.profile.unit import unit_text

SECRETS = {"KEY": "sentinel-key-1", "TOKEN": 'sentinel "$` \\ token'}
WITH_SECRETS = ["service.api_key=${env:KEY}", "env.HF_TOKEN=${env:TOKEN}"]


def settings(unit: str, name: str) -> list[str]:
    return [line.partition("=")[2] for line in unit.splitlines() if line.startswith(f"{name}=")]


def test_a_tree_is_as_wide_as_budget_and_root() -> None:
    config = config_file(load("k26-ddtree"), {})
    assert config["speculative-algorithm"] == "DDTREE"
    assert config["speculative-num-draft-tokens"] == 33
    assert config["speculative-dflash-block-size"] == 8
    assert (config["speculative-ddtree-budget"], config["speculative-ddtree-topk"]) == (32, 8)
    assert config["speculative-draft-attention-backend"] == config["attention-backend"] == "triton"


def test_a_chain_is_as_wide_as_the_block() -> None:
    config = config_file(load("k26-dflash"), {})
    assert config["speculative-num-draft-tokens"] == 8
    assert not any("ddtree" in key for key in config)


def test_a_forks_own_flags_go_verbatim() -> None:
    fork = load(
        "k26-ddtree",
        [
            "engine.provider=builtin",
            "server_args.speculative-ddtree-budget=32",
            "server_args.speculative-num-draft-tokens=33",
        ],
    )
    config = config_file(fork, {})
    assert config["speculative-ddtree-budget"] == 32
    assert "speculative-ddtree-topk" not in config
    assert "speculative-dflash-block-size" not in config
    with pytest.raises(ProfileError, match=r"set speculative\.budget instead"):
        load("k26-ddtree", ["server_args.speculative-ddtree-budget=32"])


def test_without_speculation_no_drafter_is_named() -> None:
    config = config_file(load("k26-ddtree", ["speculative.algorithm=NONE"]), {})
    assert not any(key.startswith("speculative") for key in config)


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("graphs.enabled=false", "disable-cuda-graph", True),
        ("graphs.max_bs=16", "cuda-graph-max-bs", 16),
        (
            "server_args.json-model-override-args={b: [1], a: x}",
            "json-model-override-args",
            '{"a": "x", "b": [1]}',
        ),
    ],
)
def test_config_values(override: str, key: str, value: object) -> None:
    assert config_file(load("k26-ddtree", [override]), {})[key] == value


def test_text_like_an_option_is_refused_unseen() -> None:
    profile = load("k26-ddtree", ["service.api_key=${env:KEY}"])
    with pytest.raises(ProfileError, match="--api-key starts with a dash") as caught:
        config_file(profile, {"KEY": "-sentinel-key"})
    assert "sentinel" not in caught.value.message


def test_secrets_only_in_the_two_private_files() -> None:
    profile = load("k26-ddtree", WITH_SECRETS)
    assert resolve_secrets(profile, SECRETS) == SECRETS
    private = (config_text(profile, SECRETS), systemd.environment_file(secret_environment(profile, SECRETS)))
    public = (argv(profile), public_config(profile), public_environment(profile), unit_text(profile))
    assert all("sentinel" in text for text in private)
    assert not any("sentinel" in str(part) for part in public)
    assert yaml.safe_load(private[0])["api-key"] == SECRETS["KEY"]
    assert environment(profile, SECRETS)["HF_TOKEN"] == SECRETS["TOKEN"]
    assert public_config(profile)["api-key"] == "${env:KEY}"


def test_the_release_comes_first_on_the_python_path() -> None:
    plugin = load("k26-ddtree", ["env.PYTHONPATH=/own/lib"])
    assert public_environment(plugin, "/r")["PYTHONPATH"] == "/r/engine:/r/probe:/own/lib"
    builtin = load("k26-dflash")
    assert public_environment(builtin, "/r")["PYTHONPATH"] == "/r/probe"
    assert public_environment(builtin)["HOME"] == "/root"


def test_the_unit_guards_and_bounds() -> None:
    unit = unit_text(load("k26-ddtree"))
    assert unit.startswith("# managed by ddtool; release @RELEASE@\n")
    assert settings(unit, "ConditionPathExists") == ["!/var/lib/ddtool/txn.open"]
    assert settings(unit, "LogRateLimitIntervalSec") == ["1us"]  # 0 would be journald's default
    assert settings(unit, "TimeoutStopSec") == ["120"]
    assert settings(unit, "ExecStart") == [
        "/opt/sglang/venv/bin/python -m sglang.launch_server --config @RELEASE@/config.yaml"
    ]
    assert settings(unit, "ExecStopPost") == [
        "-/usr/bin/python3 -I @RELEASE@/agent.pyz evidence sglang-k26-ddtree"
    ]
    burst, window = int(settings(unit, "StartLimitBurst")[0]), int(settings(unit, "StartLimitIntervalSec")[0])
    assert window > burst * (2400 + 120), "slow failures must still count as in a row"
    assert unit_text(load("k26-ddtree"), "/releases/7", "/state").count("@RELEASE@") == 0


def test_a_unit_cannot_be_broken_by_a_value() -> None:
    profile = load("k26-ddtree", [r"env.A='x\" y %n $HOME \\'"])
    assert 'Environment="A=x\\\\\\" y %%n $HOME \\\\\\\\"' in unit_text(profile)
    with pytest.raises(ProfileError, match="line break"):
        load("k26-ddtree", ['env.A="one\\ntwo"'])
    with pytest.raises(ValueError, match="blanks"):
        unit_text(load("k26-ddtree", ["engine.venv=/opt/my venv"]))


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=30)


def systemd_words(line: str) -> list[str]:
    """What systemd makes of an ExecStart or Environment line: shell-like quotes, then %% and (ExecStart) $$."""
    return [word.replace("%%", "%") for word in shlex.split(line)]


@given(st.lists(TEXT.filter(bool), max_size=4))
def test_every_argument_survives_exec_start(arguments: list[str]) -> None:
    line = systemd.command(["/bin/x", *arguments])
    assert [word.replace("$$", "$") for word in systemd_words(line)] == ["/bin/x", *arguments]
    stripped = line.replace("%%", "").replace("$$", "")
    assert "%" not in stripped
    assert "$" not in stripped


@given(TEXT)
def test_every_value_survives_environment(value: str) -> None:
    assert systemd_words(systemd.assignment("NAME", value)) == [f"NAME={value}"]


@given(TEXT)
def test_every_value_survives_an_environment_file(value: str) -> None:
    text = systemd.environment_file({"NAME": value})
    assert text.endswith('"\n')
    assert text.count("\n") == 1
    body = text.removeprefix('NAME="').removesuffix('"\n')
    read, position = "", 0
    while position < len(
        body
    ):  # systemd's reader: a backslash hides one of these four, and is itself otherwise
        if body[position] == "\\" and body[position + 1] in '"\\`$':
            position += 1
        else:
            assert body[position] not in '"\\`$'
        read += body[position]
        position += 1
    assert read == value


@given(st.text(string.printable, max_size=10), st.sampled_from("\n\r\0\x1b"), st.text(max_size=10))
def test_control_characters_are_refused(before: str, bad: str, after: str) -> None:
    for quote in (
        systemd.text,
        systemd.path,
        lambda value: systemd.assignment("A", value),
        lambda value: systemd.environment_file({"A": value}),
        lambda value: systemd.command(["/bin/x", value]),
    ):
        with pytest.raises(ValueError, match=r"control character|blanks"):
            quote(before + bad + after)
