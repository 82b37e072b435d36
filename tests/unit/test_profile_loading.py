"""Schema, merging and errors: each complaint names file and line, and never the value."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ddtool.errors import ProfileError
from ddtool.profile import Profile, SecretText, load, resolve_secrets
from ddtool.profile.loading import parse_override

BASE = """\
service:
  unit: sglang-small
  port: 30000
engine:
  venv: /opt/venv
  provider: builtin
  release: 0.5.12.post1
model:
  path: /models/small
drafter:
  path: /models/small-draft
speculative:
  algorithm: DFLASH
  block_size: 8
attention_backend: triton
server_args:
  page-size: 1
  mem_fraction_static: 0.8
env:
  NCCL_DEBUG: WARN
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(BASE)
    return tmp_path


def small(folder: Path, *overrides: str, extra: str = "") -> Profile:
    (folder / "small.yaml").write_text(BASE + extra)
    return load("small", overrides, [folder])


def complaint(folder: Path, *overrides: str, text: str | None = None) -> str:
    if text is not None:
        (folder / "small.yaml").write_text(text)
    with pytest.raises(ProfileError) as caught:
        load("small", overrides, [folder])
    assert caught.value.exit_code == 2
    return caught.value.message


def line_of(text: str, wanted: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if wanted in line)


def test_shipped_profiles_load() -> None:
    assert load("k26-ddtree").speculative.budget == 32
    chain = load("k26-dflash")
    assert (chain.speculative.algorithm, chain.speculative.budget) == ("DFLASH", None)
    assert chain.server_args == load("k26-ddtree").server_args
    assert chain.attention_backend == "triton"
    assert chain.graphs == load("k26-ddtree").graphs


def test_flags_have_one_spelling(folder: Path) -> None:
    assert small(folder).server_args == {"page-size": 1, "mem-fraction-static": 0.8}
    assert small(folder, "server_args.mem_fraction_static=0.7").server_args["mem-fraction-static"] == 0.7


def test_null_takes_an_inherited_flag_away(folder: Path) -> None:
    (folder / "child.yaml").write_text(
        "extends: small\nserver_args:\n  page_size: null\nenv: {NCCL_DEBUG: null, A: 1}\n"
    )
    child = load("child", (), [folder])
    assert child.server_args == {"mem-fraction-static": 0.8}
    assert child.env == {"A": "1"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("  block_size: 8", "  blocksize: 8", "did you mean block_size?"),
        ("  port: 30000", '  port: "30000"', "service.port: Input should be a valid integer"),
        (
            "  provider: builtin",
            "  provider: plugins",
            "engine.provider: Input should be 'plugin' or 'builtin'",
        ),
        ("  NCCL_DEBUG: WARN", "  NCCL_DEBUG: true", "env.NCCL_DEBUG: write it in quotes"),
        ("  NCCL_DEBUG: WARN", "  HF_TOKEN: hunter2hunter2", "env.HF_TOKEN: this looks like a secret"),
        ("  page-size: 1", "  tp-size: 8", "server_args.tp-size: set parallel.tp instead"),
        ("  page-size: 1", "  nnodes: 2", "server_args.nnodes: a deploy goes to one host"),
        ("  NCCL_DEBUG: WARN", "  A: ${HOME}/x", "env.A: only ${env:NAME} is replaced"),
    ],
)
def test_an_error_names_file_line_and_key(folder: Path, old: str, new: str, expected: str) -> None:
    text = BASE.replace(old, new)
    message = complaint(folder, text=text)
    assert f"small.yaml:{line_of(text, new.strip())}: " in message
    assert expected in message
    assert "hunter2" not in message


@pytest.mark.parametrize("key", ["host", "hosts", "nnodes", "replicas"])
def test_a_host_in_a_profile_gets_its_own_answer(folder: Path, key: str) -> None:
    assert "ddtool profile bind" in complaint(folder, text=BASE + f"{key}: 3\n")


def test_a_repeated_key_is_an_error(folder: Path) -> None:
    text = BASE + "model:\n  path: /other\n"
    assert f"small.yaml:{text.count(chr(10)) - 1}: model is given twice" in complaint(folder, text=text)


def test_bad_yaml_names_its_line(folder: Path) -> None:
    assert "small.yaml:3: not valid YAML" in complaint(folder, text="service:\n  unit: [\n")


def test_an_error_in_a_base_names_the_base(folder: Path) -> None:
    (folder / "small.yaml").write_text(BASE.replace("  port: 30000", "  port: high"))
    (folder / "child.yaml").write_text("extends: small\n")
    with pytest.raises(ProfileError, match=r"small\.yaml:3: service\.port"):
        load("child", (), [folder])


def test_extends_goes_one_level(folder: Path) -> None:
    (folder / "child.yaml").write_text("extends: small\n")
    (folder / "grandchild.yaml").write_text("extends: child\n")
    with pytest.raises(ProfileError, match="itself extends small"):
        load("grandchild", (), [folder])
    (folder / "selfish.yaml").write_text("extends: selfish\n")
    with pytest.raises(ProfileError, match="cannot extend itself"):
        load("selfish", (), [folder])


def test_a_nearer_folder_hides_a_farther_one(folder: Path, tmp_path: Path) -> None:
    near = tmp_path / "near"
    near.mkdir()
    (near / "small.yaml").write_text(BASE.replace("30000", "30001"))
    assert load("small", (), [near, folder]).service.port == 30001
    assert load(str(folder / "small.yaml"), (), [near]).service.port == 30000


def test_an_unknown_name_suggests_one(folder: Path) -> None:
    with pytest.raises(ProfileError, match="did you mean small"):
        load("smal", (), [folder])


def test_overrides_win_and_are_named(folder: Path) -> None:
    assert small(folder, "service.port=31000", "parallel.tp=2").parallel.tp == 2
    assert "--set service.port: service.port: " in complaint(folder, "service.port=high")
    assert "has no keys below it" in complaint(folder, "service.port.x=1")
    assert "hunter2" not in complaint(folder, "service.api_key=hunter2hunter2")


@pytest.mark.parametrize("text", ["", "service.port", "=3", "a..b=3", ".a=1"])
def test_malformed_overrides(folder: Path, text: str) -> None:
    assert "not of the form" in complaint(folder, text)


KEYS = st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), min_size=1, max_size=4)
VALUES = st.one_of(
    st.integers(),
    st.booleans(),
    st.none(),
    st.text(st.characters(categories=("L", "N", "P", "Zs"))),
    st.lists(st.integers()),
)


@given(KEYS, VALUES)
def test_any_yaml_value_survives_an_override(keys: list[str], value: object) -> None:
    text = (
        yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("\n").removesuffix("\n...")
    )
    parsed_keys, parsed = parse_override(f"{'.'.join(keys)}={text}")
    assert parsed == value
    assert [key.replace("_", "-") for key in parsed_keys] == [key.replace("_", "-") for key in keys]


def test_secrets_stay_references_until_resolved(folder: Path) -> None:
    profile = small(
        folder,
        "service.api_key=${env:KEY}",
        "env.URL='https://u:${env:PASS}@x'",
        "server_args.admin-api-key=${env:KEY}",
    )
    sentinel = {"KEY": "sentinel-key-1", "PASS": "sentinel-pass-2"}
    for shown in (repr(profile), str(profile), profile.model_dump_json()):
        assert "${env:KEY}" in shown
        assert "sentinel" not in shown
    assert resolve_secrets(profile, {**sentinel, "OTHER": "not asked for"}) == sentinel
    url = profile.env["URL"]
    assert isinstance(url, SecretText)
    assert url.resolve(sentinel) == "https://u:sentinel-pass-2@x"


def test_a_dumped_profile_loads_again(folder: Path) -> None:
    profile = small(folder, "service.api_key=${env:KEY}", "server_args.json-model-override-args={a: 1}")
    assert Profile.model_validate(profile.model_dump(mode="json")) == profile


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, "not set"), ({"KEY": "short"}, "shorter than 8"), ({"KEY": "long-enough\n"}, "line break")],
)
def test_an_unusable_secret_is_named_and_not_shown(
    folder: Path, environ: dict[str, str], expected: str
) -> None:
    profile = small(folder, "service.api_key=${env:KEY}")
    with pytest.raises(ProfileError, match=expected) as caught:
        resolve_secrets(profile, environ)
    assert "KEY" in caught.value.message
    assert "short\n" not in caught.value.message
    assert "long-enough" not in caught.value.message
