"""Hand-made units as profiles: what is started comes out the same, no secret does, and nothing is dropped silently."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support import handmade_units as units
from support.handmade_units import Made

from ddtool.deploy.handmade import judged
from ddtool.errors import ProfileError
from ddtool.profile import flag_words, from_unit, load, release_flags, unit_settings, unit_text
from ddtool.profile.from_unit import FromUnit
from ddtool.profile.launch import argv, public_config, public_environment

RELEASE = "0.5.12.post1"
SERVER = "/opt/venv/bin/python -m sglang.launch_server --model-path /m --attention-backend triton"
SECRETS = ("sk-secret-of", "hf_abcdef", "abcdefgh12345678", "key-of-the-process", "in-the-config-file")


def engine_of(made: Made, started: from_unit.Started, **more: Any) -> dict[str, Any]:
    launch = started.launch
    folder = launch.venv or launch.python.rpartition("/bin/")[0]
    config = {"block_size": 8}
    return {
        "venv": {"path": folder, "dists": {"sglang": RELEASE}},
        "shadow": False,
        "models": {
            path: {"path": path, "exists": path.startswith("/"), "config": config, "bytes": 2**30}
            for path in from_unit.paths_of(started, made.found())
        },
        **more,
    }


def profile_of(made: Made, **engine: Any) -> FromUnit:
    started = from_unit.what_starts(made.found())
    return from_unit.to_profile(made.found(), started, engine_of(made, started, **engine))


def left(made: FromUnit) -> str:
    return "\n".join(f"{row.what}: {row.why}" for row in made.left)


@pytest.mark.parametrize("name", sorted(units.ALL.keys() - {"container"}))
def test_no_secret_comes_out(name: str) -> None:
    made = profile_of(units.ALL[name])
    told = json.dumps([made.text("gpu1"), str(made)])
    assert not any(secret in told for secret in SECRETS)


@pytest.mark.parametrize("name", sorted(units.ALL.keys() - {"container"}))
def test_every_setting_is_carried_covered_or_listed(name: str) -> None:
    unit = units.ALL[name]
    made = profile_of(unit)
    told = {row.what for row in [*made.covered, *made.left]} | {row.why for row in made.carried}
    for setting in unit_text.settings(unit.found()["texts"]):
        if setting.name not in ("ExecStart", "Environment", "EnvironmentFile"):
            assert f"{setting.name}={setting.value}" in told, setting


@pytest.mark.parametrize("name", sorted(units.ALL.keys() - {"container", "eagle", "hub", "template"}))
def test_deploying_it_starts_the_same(name: str, tmp_path: Any) -> None:
    """The flags that ddtool's release gives SGLang are those of the unit, and those that ddtool always gives."""
    unit = units.ALL[name]
    found, known = unit.found(), release_flags.load(RELEASE)
    started = from_unit.what_starts(found)
    made = profile_of(unit)
    path = tmp_path / "p.yaml"
    path.write_text(made.text("gpu1"))
    profile = load(str(path))
    before = normal(from_unit.all_flags(started, found, known)[0])
    after = normal(flag_words.from_config(public_config(profile)))
    given = {"host": "127.0.0.1", "port": "30000", "tp-size": "1", "served-model-name": before["model-path"]}
    if profile.speculative.algorithm != "NONE":
        given["speculative-draft-attention-backend"] = "triton"
    assert after == {**given, **before}
    folder = started.launch.venv or started.launch.python.rpartition("/bin/")[0]
    assert argv(profile)[0] == f"{folder}/bin/python"
    environment = public_environment(profile)
    for variable, value in started.environment.items():
        if value and "${env:" not in value and variable != "PYTHONPATH":
            assert environment[variable] == value


def normal(flags: dict[str, list[str]]) -> dict[str, str]:
    names = {
        "model": "model-path",
        "tp": "tp-size",
        "speculative-draft-model": "speculative-draft-model-path",
    }
    plain = {names.get(name, name): " ".join(words) or "True" for name, words in flags.items()}
    if "cuda-graph-bs" in plain:
        plain.pop("cuda-graph-max-bs", None)
    return {name: "0.85" if value == "0.850" else value for name, value in plain.items()}


def test_a_login_shell_with_everything_in_one_line() -> None:
    made = profile_of(units.LOGIN_SHELL)
    assert made.profile["service"] == {
        "unit": "sglang-k26-ddtree",
        "port": 30001,
        "bind": "0.0.0.0",
        "api_key": "${env:SGLANG_API_KEY}",
        "deadlines": {"stop_s": 120},
    }
    assert made.profile["engine"] == {
        "venv": "/root/venv_sglang211",
        "provider": "builtin",
        "release": RELEASE,
    }
    assert made.profile["speculative"] == {"algorithm": "DFLASH", "block_size": 8}
    assert made.profile["parallel"] == {"tp": 8}
    assert made.profile["server_args"] == {"mem-fraction-static": 0.85, "trust-remote-code": True}
    assert made.profile["env"]["SGLANG_NOTE"] == "two words"
    assert made.profile["env"]["PATH"].startswith("/root/venv_sglang211/bin:")
    assert "a login shell" in left(made) and "StandardOutput=append:/var/log/sglang.log" in left(made)
    assert made.secrets == {"SGLANG_API_KEY": "somewhere"}
    assert judged(made.text("gpu1"), "x")[0] is None


def test_an_environment_file_gives_values_words_and_a_secret() -> None:
    made = profile_of(units.ENVIRONMENT_FILE)
    assert made.profile["model"]["path"] == "/models/deepseek"
    assert made.profile["service"]["port"] == 31500  # a file comes after Environment=
    assert made.profile["service"]["api_key"] == "${env:API_KEY}"
    assert made.profile["server_args"] == {"context-length": 32768}
    assert "IGNORED" not in made.profile["env"]
    assert "ExecStartPre=/bin/sleep 0" in left(made)


def test_a_script_and_its_wrappers() -> None:
    made = profile_of(units.SCRIPT)
    assert made.profile["engine"]["venv"] == "/srv/kimi/.venv"
    assert made.profile["graphs"] == {"bs": [1, 2, 4, 8]}
    assert made.profile["env"]["OMP_NUM_THREADS"] == "8"
    assert made.profile["env"]["HOME"] == "/home/llm"
    assert made.profile["server_args"]["json-model-override-args"] == '{"max_position_embeddings": 65536}'
    for what in (
        "numactl --cpunodebind=0 --membind=0",
        "User=llm",
        "ulimit",
        "mkdir -p",
        "source ./common.env",
        "out.log",
        "python -u",
        "--cuda-graph-max-bs 8",
        "LimitCORE",
    ):
        assert what in left(made), what


def test_what_a_shell_would_compute_is_read_from_the_process() -> None:
    made = profile_of(units.COMPUTED)
    assert made.profile["parallel"]["tp"] == 8
    assert made.profile["service"]["api_key"] == "${env:SGLANG_API_KEY}"
    assert "read from the running process" in left(made)


def test_a_container_is_refused_with_the_reason() -> None:
    with pytest.raises(ProfileError, match="container"):
        from_unit.what_starts(units.CONTAINER.found())


def test_another_algorithm_is_listed_with_all_that_goes_with_it() -> None:
    made = profile_of(units.EAGLE)
    assert "speculative" not in made.profile and "drafter" not in made.profile
    assert made.profile["graphs"] == {"enabled": False}
    assert "--speculative-algorithm EAGLE3" in left(made) and "--speculative-num-steps 3" in left(made)
    assert judged(made.text("gpu1"), "x")[0] is None


def test_a_forks_tree_keeps_its_flags() -> None:
    made = profile_of(units.FORK_TREE)
    assert made.profile["speculative"] == {"algorithm": "DDTREE", "block_size": 8, "budget": 32, "topk": 8}
    assert made.profile["server_args"]["speculative-num-draft-tokens"] == 33


def test_drop_ins_reset_and_add() -> None:
    made = profile_of(units.DROP_INS)
    assert made.profile["env"] == {"B": "2"}
    assert made.profile["model"]["path"] == "/models/m"
    assert "CPUAffinity=0-15" in left(made)


def test_an_instance_of_a_template_gets_a_name_of_its_own() -> None:
    made = profile_of(units.TEMPLATE)
    assert made.profile["service"]["unit"] == "sglang-k26"
    assert made.profile["model"] == {"path": "/models/k26", "served_name": "k26"}
    assert made.profile["engine"]["venv"] == "/opt/sglang"
    assert "stop and disable sglang@k26" in left(made)


def test_a_hub_name_an_abbreviation_and_a_package_in_the_working_directory() -> None:
    made = profile_of(units.HUB, shadow=True)
    assert made.profile["server_args"] == {"mem-fraction-static": 0.8, "tokenizer-worker-num": 2}
    assert made.profile["env"]["PYTHONPATH"] == "/root/sglang/python"
    assert made.profile["attention_backend"] == "fa3"
    assert "model hub" in "\n".join(made.remarks)
    assert made.profile["engine"]["venv"] == "/opt/venv"


def test_a_profile_that_misses_something_says_what() -> None:
    unit = units.one("bare", "ExecStart=/opt/venv/bin/python -m sglang.launch_server --model-path /m\n")
    made = profile_of(unit)
    why, _ = judged(made.text("gpu1"), "bare")
    assert why is not None and "attention_backend" in why
    assert any("attention_backend" in remark for remark in made.remarks)


def test_a_path_beside_the_working_directory_is_written_out() -> None:
    unit = units.one(
        "beside",
        "WorkingDirectory=/srv/k\nExecStart=/opt/venv/bin/python -m sglang.launch_server --model-path /m "
        "--attention-backend triton --chat-template ../t.jinja\n",
    )
    assert profile_of(unit).profile["server_args"] == {"chat-template": "/srv/t.jinja"}


@pytest.mark.parametrize(
    ("settings", "template"),
    [
        ("User=llm\nWorkingDirectory=~", "/home/llm/t.jinja"),
        ("WorkingDirectory=~", "/root/t.jinja"),
        ("WorkingDirectory=-/data/a~b", "/data/a~b/t.jinja"),
    ],
)
def test_a_tilde_is_the_home_of_the_units_user(settings: str, template: str) -> None:
    unit = units.one(
        "home", f"{settings}\nExecStart={SERVER} --chat-template ./t.jinja\n", homes={"llm": "/home/llm"}
    )
    assert profile_of(unit).profile["server_args"] == {"chat-template": template}


@pytest.mark.parametrize(
    "flag",
    [
        "--cuda-graph-bs {1..8}",  # which only bash would have made numbers
        "--cuda-graph-max-bs",
        f"--cuda-graph-max-bs {'9' * 5000}",
        "--tp-size two",
        "--speculative-algorithm DFLASH --speculative-draft-model-path /d --speculative-num-draft-tokens 8x",
    ],
)
def test_what_is_no_number_is_left_behind(flag: str) -> None:
    made = profile_of(units.one("odd", f"ExecStart={SERVER} {flag}\n"))
    assert f"--{flag.rpartition('--')[2]}: not a number" in left(made)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("8", 8),
        ("-1", -1),
        ("007", "007"),
        ("0.850", 0.85),
        ("1e3", "1e3"),
        ("-", "-"),
        ("1.", "1."),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_numbers_of_a_command_line(word: str, value: Any) -> None:
    assert flag_words.typed("some-flag", [word]) == value
    assert flag_words.typed("some-name", [word]) == word


def test_an_edit_since_the_start_is_noticed() -> None:
    command = (
        "/opt/venv/bin/python -m sglang.launch_server --model-path /m --port 9 --attention-backend triton"
    )
    unit = units.one(
        "edited",
        f"ExecStart={command} --port 10\n",
        process={"pid": 1, "argv": command.split(), "cwd": "/"},
    )
    assert "other values of --port" in "\n".join(profile_of(unit).remarks)


def test_quotes_escapes_and_comments_of_systemd() -> None:
    started = from_unit.what_starts(units.CONTINUED.found())
    assert started.launch.flags[1] == "/models/with blank"
    assert started.launch.flags[3] == "/etc/t u.jinja"
    assert started.environment == {"MSG": 'a "quoted" 50% off', "EMPTY": "", "NEST": "x'y"}


@pytest.mark.parametrize(
    ("text", "seconds"), [("20", 20), ("2min 30s", 150), ("infinity", None), ("500ms", None), ("1h", 3600)]
)
def test_time_spans(text: str, seconds: int | None) -> None:
    assert unit_settings.seconds(text) == seconds
