"""`bench --url` with chats, on real SGLang: they reach the model as the server's own chat template renders them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cli import here as ddtool
from support.ddtree import CHAIN, DDTREE, PLAIN, environment, inside, install
from support.engine_server import EngineServer

from ddtool import profile as profiles
from ddtool.agent.prompt_ids import ids_of
from ddtool.bench import store
from ddtool.sandbox import Sandbox
from ddtool.sandbox.image import VENV

# The small service shows both in every run: tests/unit/test_bench_by_url.py
pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]

TOKENS = 8
TEMPLATE_PATH = "/run/chat.jinja"
# Its first token is the tokenizer's special one; a tokenizer that adds it once more, or spells it out, is seen.
TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}# {{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}def {% endif %}"
)
CHATS = [
    [{"role": "user", "content": "open a file"}],
    [
        {"role": "system", "content": "answer in Python"},
        {"role": "user", "content": "list a folder’s names"},
        {"role": "assistant", "content": "import os"},
        {"role": "user", "content": "go on"},
    ],
]
RENDER = """
import json, sys
from transformers import AutoTokenizer
asked = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(asked["model"])
tokenizer.chat_template = asked["template"]
ids = [tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False) for chat in asked["chats"]]
print(json.dumps(ids))
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """One greedy pass of the chats by each arm. It has 32 requests, because --lossless is what keeps the answers."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in CHATS))
    words = ["--workload", str(path), "--tokens", str(TOKENS), "--ignore-eos", "--lossless"]
    words += ["--concurrency", "4", "--repeats", "1", "--visits", "1"]

    def run(**servers: EngineServer) -> Any:
        urls = [word for arm, server in servers.items() for word in ("--url", f"{arm}={server.url}")]
        return ddtool("bench", *urls, *words)

    return run


def rendered(host: Sandbox, model: str) -> list[list[int]]:
    """What transformers makes of the chats, without SGLang."""
    asked = {"model": model, "template": TEMPLATE, "chats": CHATS}
    return json.loads(inside(host, f"{VENV}/bin/python", "-c", RENDER, input=json.dumps(asked)))


def test_a_chat_is_answered_as_transformers_renders_it(serve, engine_host, bench):
    inside(engine_host, "sh", "-c", f"cat > {TEMPLATE_PATH}", input=TEMPLATE)
    server = serve("demo", **PLAIN, chat_template=TEMPLATE_PATH)
    expected = rendered(engine_host, profiles.load("demo").model.path)
    assert [ids_of({"messages": chat}, server.answer) for chat in CHATS] == expected

    done = bench(plain=server)
    assert done.returncode == 0, done.stderr
    lines = [line for line in store.runs()[0].lines() if line["kind"] == "sample"]
    samples = sorted(lines, key=lambda line: line["index"])[: len(CHATS)]
    assert [sample["prompt_tokens"] for sample in samples] == [len(ids) for ids in expected]
    said = server.generate(expected, TOKENS, ignore_eos=True)
    assert [sample["output_ids"] for sample in samples] == [completion.ids for completion in said]
    assert [sample["text"] for sample in samples] == [chat_text(server, chat) for chat in CHATS]


def chat_text(server: EngineServer, messages: Any) -> str:
    """What the server's own endpoint for chats says."""
    limits = {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    answer = server.answer("/v1/chat/completions", {"model": "code-1m", "messages": messages, **limits})
    return answer["choices"][0]["message"]["content"]


def test_chats_have_the_same_answers_with_chain_and_tree(serve, engine_host, bench):
    install(engine_host)
    inside(engine_host, "sh", "-c", f"cat > {TEMPLATE_PATH}", input=TEMPLATE)
    done = bench(
        plain=serve("demo", **PLAIN, chat_template=TEMPLATE_PATH),
        chain=serve("demo", **CHAIN, chat_template=TEMPLATE_PATH, patience=2),
        tree=serve("demo", **DDTREE, chat_template=TEMPLATE_PATH, env=environment(), patience=3),
    )
    assert done.returncode == 0, done.stderr
    samples = [line for line in store.runs()[0].lines() if line["kind"] == "sample"]
    by_arm: dict[str, dict[int, Any]] = {}
    for one in samples:
        by_arm.setdefault(one["pass"].partition("/")[0], {})[one["index"]] = one
    assert set(by_arm) == {"plain", "chain", "tree"}
    for arm in ("chain", "tree"):
        for index, plain in by_arm["plain"].items():
            mine = by_arm[arm][index]
            assert (mine["prompt_tokens"], mine["output_ids"]) == (
                plain["prompt_tokens"],
                plain["output_ids"],
            )
        assert sum(one["verify_ct"] for one in by_arm[arm].values()) < (TOKENS - 1) * len(by_arm[arm]), (
            "drafts"
        )


def test_a_server_without_a_template_says_so_and_nothing_is_measured(serve, bench):
    refused = bench(plain=serve("demo", **PLAIN))
    assert refused.returncode == 3
    assert "/tokenize answers 400: Cannot use chat template functions" in refused.stderr
    assert "takes SGLang 0.5.12 or later with a chat template" in refused.stderr
    assert not [line for line in store.runs()[0].lines() if line["kind"] in ("begin", "sample")]
