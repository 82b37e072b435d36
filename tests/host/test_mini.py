"""The small service stands in for SGLang in the kill tests, so it must look like it from the outside."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import pairwise

import pytest
from support import mini
from support.remote import output, ssh, until

from ddtool import profile
from ddtool.probe import probe_files
from ddtool.profile.launch import argv, config_text
from ddtool.sandbox import Sandbox

pytestmark = pytest.mark.host
PORT = 31000
KEY = "sentinel-7f3a"


@pytest.fixture(scope="module")
def installed(host: Sandbox) -> Sandbox:
    mini.install(host)
    return host


@pytest.fixture
def start(installed: Sandbox) -> Iterator[object]:
    """Start the service by hand as a transient unit, with these switches in its environment."""

    def run(**env: str) -> str:
        loaded = profile.load(str(mini.PROFILE))
        config = config_text(loaded, {}) + f"api-key: {KEY}\n"
        output(installed, "mkdir -p /opt/mini/release && cat > /opt/mini/release/config.yaml", input=config)
        settings = " ".join(f"-E {name}={value}" for name, value in env.items())
        command = " ".join(map(shlex.quote, argv(loaded, "/opt/mini/release")))
        output(installed, f"systemd-run -q --unit sglang-mini {settings} {command}")
        return "sglang-mini"

    yield run
    ssh(installed, "systemctl stop sglang-mini; systemctl reset-failed sglang-mini")


def get(host: Sandbox, path: str, body: dict[str, object] | None = None) -> str:
    """The service's answer, as text; the first word is the status."""
    script = (
        "import urllib.request\n"
        f"data = {json.dumps(body).encode() if body else None!r}\n"
        f"request = urllib.request.Request('http://127.0.0.1:{PORT}{path}', data,"
        f" {{'Authorization': 'Bearer {KEY}'}})\n"
        "try:\n"
        "    answer = urllib.request.urlopen(request, timeout=5)\n"
        "except OSError:\n"
        "    answer = None\n"
        "print(answer.status if answer else 0, answer.read().decode() if answer else '')\n"
    )
    return output(host, "python3 -", input=script)


def healthy(host: Sandbox) -> bool:
    return get(host, "/health").startswith("200")


def journal(host: Sandbox) -> str:
    return output(host, "journalctl -u sglang-mini --all -o cat")


def test_generates_like_sglang(installed: Sandbox, start) -> None:
    start()
    until(lambda: healthy(installed))
    status, _, text = get(
        installed, "/generate", {"text": "a b c", "sampling_params": {"max_new_tokens": 9}}
    ).partition(" ")
    meta = json.loads(text)["meta_info"]
    assert status == "200"
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["spec_verify_ct"]) == (3, 9, 3)
    assert json.loads(get(installed, "/server_info").partition(" ")[2])["tp_size"] == 2
    assert "api_key='" + KEY in journal(installed)  # as SGLang does: what the probe has to mask
    assert " TP1] Decode batch" in journal(installed)


def test_streams_like_sglang(installed: Sandbox, start) -> None:
    """Text and ids grow from event to event; only the last one has a reason to finish and the verify steps."""
    start()
    until(lambda: healthy(installed))
    params = {"max_new_tokens": 8}
    status, _, text = get(
        installed, "/generate", {"text": "a b c", "stream": True, "sampling_params": params}
    ).partition(" ")
    *events, end = text.rstrip("\n").split("\n\n")
    answers = [json.loads(event.removeprefix("data: ")) for event in events]
    assert (status, end) == ("200", "data: [DONE]")
    assert [answer["meta_info"]["completion_tokens"] for answer in answers] == [3, 6, 8]
    assert [len(answer["output_ids"]) for answer in answers] == [3, 6, 8]
    assert all(after["text"].startswith(one["text"] + " ") for one, after in pairwise(answers))
    metas = [answer["meta_info"] for answer in answers]
    assert [meta.get("spec_verify_ct") for meta in metas] == [None, None, 3]
    assert [meta["finish_reason"] for meta in metas[:-1]] == [None, None]


def test_ranks_have_sglangs_titles(installed: Sandbox, start) -> None:
    start()
    until(lambda: healthy(installed))
    titles = output(installed, "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep ^sglang:: | sort")
    assert titles.split() == ["sglang::scheduler_TP0", "sglang::scheduler_TP1"]


def test_its_wheel_is_whole(installed: Sandbox) -> None:
    script = (
        "import base64, csv, hashlib, pathlib, sys\n"
        "site = pathlib.Path(sys.argv[1])\n"
        "record = next(site.glob('sglang-*.dist-info')) / 'RECORD'\n"
        "for name, digest, size in csv.reader(record.open()):\n"
        "    own = base64.urlsafe_b64encode(hashlib.sha256((site / name).read_bytes()).digest())\n"
        "    assert not digest or digest == 'sha256=' + own.rstrip(b'=').decode(), name\n"
    )
    output(installed, f"python3 - {mini.VENV}/lib/python3.*/site-packages", input=script)


@pytest.mark.parametrize("when", ["start", "after_ready", "on_generate"])
def test_crashes_on_demand_with_a_traceback(installed: Sandbox, start, when: str) -> None:
    start(MINI_CRASH=when)
    if when == "on_generate":
        until(lambda: healthy(installed))
        get(installed, "/generate", {"text": "a"})
    until(lambda: "failed" in ssh(installed, "systemctl is-active sglang-mini").stdout)
    assert output(installed, "systemctl show -P ExecMainStatus sglang-mini") == "3"
    assert "Traceback (most recent call last)" in journal(installed)
    if when == "on_generate":
        assert "AttributeError: 'NoneType' object has no attribute 'dtype'" in journal(installed)


def test_hangs_on_demand(installed: Sandbox, start) -> None:
    start(MINI_HANG="start")
    until(lambda: "TP1] Load weight begin" in journal(installed))
    assert get(installed, "/health").startswith("0")
    output(installed, "timeout 3 systemctl stop sglang-mini")


def test_the_host_probe_works_in_every_process(installed: Sandbox, start) -> None:
    for name, data in probe_files().items():
        path = f"/opt/mini/probe/{name}"
        output(installed, f"mkdir -p $(dirname {path}) && cat > {path}", input=data.decode())
    start(PYTHONPATH="/opt/mini/probe", DDTOOL_UNIT="sglang-mini", DDTOOL_RUN="/run/mini-proofs")
    until(lambda: healthy(installed))
    assert KEY not in journal(installed).rpartition("server_args=")[2]
    proofs = output(installed, "ls /run/mini-proofs/sglang-mini").split()
    ranks = output(installed, "pgrep -f ^sglang::scheduler_TP").split()
    assert {proof.partition("-")[0] for proof in proofs} > set(ranks)
    output(installed, f"kill -USR2 {ranks[0]}")
    until(lambda: "scheduler.py" in ssh(installed, f"cat /run/mini-proofs/sglang-mini/{ranks[0]}-*").stdout)
    assert healthy(installed)
