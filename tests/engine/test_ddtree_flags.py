"""What DDTREE says to its user before any model is loaded: files, flags, switches, refusals. No torch, no SGLang."""

from __future__ import annotations

import argparse
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ddtool.engine import engine_files, engine_id, flags
from ddtool.engine.flags import CHANNEL, TreeFlags
from ddtool.engine.switches import Switches
from ddtool.engine.v1 import arguments, guard, requests

GOOD: dict[str, Any] = {
    "speculative_draft_model_path": "/draft",
    "speculative_draft_model_revision": None,
    "speculative_dflash_block_size": 8,
    "speculative_num_draft_tokens": None,
    "speculative_draft_window_size": None,
    "page_size": 1,
    "enable_dp_attention": False,
    "pp_size": 1,
    "attn_cp_size": 1,
    "tokenizer_worker_num": 1,
    "enable_mixed_chunk": False,
    "disaggregation_mode": "null",
    "enable_lora": None,
    "lora_paths": None,
    "enable_two_batch_overlap": False,
    "enable_pdmux": False,
    "enable_deterministic_inference": False,
    "enable_custom_logit_processor": False,
    "enable_return_hidden_states": False,
    "max_running_requests": None,
    "disable_overlap_schedule": False,
}


def server_args(backends: tuple[str, str] = ("triton", "triton"), **changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**GOOD, **changes}, get_attention_backends=lambda: backends)


@pytest.fixture(autouse=True)
def no_channel(monkeypatch):
    monkeypatch.setenv(CHANNEL, "")


def test_a_release_gets_the_package_and_its_entry_point():
    files = engine_files()
    assert {"ddtool_engine/plugin.py", "ddtool_engine/core/trees.py", "ddtool_engine/v1/worker.py"} <= set(
        files
    )
    (entry,) = [path for path in files if path.endswith("entry_points.txt")]
    assert entry == f"ddtool_engine-{engine_id()}.dist-info/entry_points.txt"
    assert files[entry] == b"[sglang.srt.plugins]\nddtree = ddtool_engine.plugin:load\n"


def test_the_renamed_package_imports_without_torch_or_ddtool(tmp_path):
    for path, content in engine_files().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    code = (
        "import sys, ddtool_engine, ddtool_engine.plugin\n"
        "assert not {'torch', 'sglang', 'ddtool'} & set(sys.modules), sorted(sys.modules)\n"
        "print(ddtool_engine.engine_id())"
    )
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (engine_id(), "")


def parse(*argv: str) -> tuple[TreeFlags, argparse.Namespace]:
    parser = argparse.ArgumentParser()
    flags.add_flags(lambda _: None, parser)
    args = parser.parse_args(argv)
    assert flags.take_flags(lambda cls, args: (cls, args), SimpleNamespace, args) == (SimpleNamespace, args)
    return TreeFlags.from_environment(), args


def test_flags_reach_the_channel():
    assert parse("--speculative-ddtree-budget", "63", "--speculative-ddtree-chain-seed")[0] == TreeFlags(
        budget=63, chain_seed=True
    )


def test_flags_win_over_the_environment_one_by_one(monkeypatch):
    monkeypatch.setenv(CHANNEL, "budget=16,topk=4")
    given = parse("--speculative-ddtree-budget", "31", "--speculative-ddtree-chain-seed", "false")[0]
    assert given == TreeFlags(budget=31, topk=4, chain_seed=False)


@pytest.mark.parametrize("text", ["budget", "budget=x", "budgets=3", "topk=-1"])
def test_a_broken_channel_is_named(text):
    with pytest.raises(ValueError, match=CHANNEL):
        TreeFlags.from_channel(text)


def test_both_widths_follow_from_the_budget(monkeypatch):
    monkeypatch.setenv(CHANNEL, "budget=31,topk=4")
    args = server_args()
    arguments.apply(args)
    shape = arguments.shape_of(args)
    assert (shape.block, shape.width, shape.depth, shape.topk) == (8, 32, 7, 4)
    assert args.speculative_num_draft_tokens == 32
    assert (args.speculative_num_steps, args.speculative_eagle_topk) == (1, 1)
    assert args.disable_overlap_schedule
    arguments.apply(args)  # SGLang may validate a copy again
    assert arguments.shape_of(args) == shape


def test_without_flags_the_block_decides():
    args = server_args(speculative_dflash_block_size=16)
    arguments.apply(args)
    assert arguments.shape_of(args) == arguments.TreeShape(block=16, budget=64, topk=8, chain_seed=False)


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"speculative_draft_model_path": None}, "--speculative-draft-model-path"),
        ({"page_size": 64}, "--page-size 1"),
        ({"enable_dp_attention": True}, "--enable-dp-attention"),
        ({"pp_size": 2}, "--pp-size 1"),
        ({"tokenizer_worker_num": 2}, "--tokenizer-worker-num 1"),
        ({"enable_mixed_chunk": True}, "--enable-mixed-chunk"),
        ({"disaggregation_mode": "decode"}, "--disaggregation-mode"),
        ({"lora_paths": ["x"]}, "--lora-paths"),
        ({"speculative_num_draft_tokens": 8}, "--speculative-num-draft-tokens"),
        ({"speculative_draft_window_size": 4}, "at least 8"),
        ({"backends": ("fa3", "triton")}, "--attention-backend triton"),
        ({"backends": ("flashinfer", "flashinfer")}, "--attention-backend triton"),
    ],
)
def test_what_cannot_work_is_refused_and_the_fix_named(monkeypatch, changes, fix):
    monkeypatch.setenv(CHANNEL, "budget=32")
    with pytest.raises(ValueError, match=fix):
        arguments.apply(server_args(**changes))


@pytest.mark.parametrize(
    ("channel", "fix"),
    [
        ("budget=6", "at least 7"),
        ("budget=32,topk=1", "raise --speculative-ddtree-topk"),
        ("topk=0", "at least 1"),
    ],
)
def test_impossible_trees_are_refused(monkeypatch, channel, fix):
    monkeypatch.setenv(CHANNEL, channel)
    with pytest.raises(ValueError, match=fix):
        arguments.apply(server_args())


def test_switches():
    assert Switches.parse("verify-trace:/t.jsonl, rank-sync,kv-ledger") == Switches("/t.jsonl", True, True)
    assert Switches.parse("every-token,verify-trace:/t.jsonl") == Switches("/t.jsonl", every_token=True)
    assert Switches.parse("") == Switches()


@pytest.mark.parametrize("text", ["verify-trace", "kv-ledger:x", "every-token:1", "ranksync"])
def test_an_unknown_switch_is_an_error(text):
    with pytest.raises(ValueError, match="DDTOOL_ENGINE_TRACE"):
        Switches.parse(text)


def request(**changes: Any) -> SimpleNamespace:
    sampling = dict.fromkeys(("json_schema", "regex", "ebnf", "structural_tag"))
    sampling |= {"frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1, "min_new_tokens": 0}
    whole = {"return_logprob": False, "return_hidden_states": False, "input_embeds": None}
    params = SimpleNamespace(**{name: changes.get(name, value) for name, value in sampling.items()})
    return SimpleNamespace(
        sampling_params=params, **{name: changes.get(name, value) for name, value in whole.items()}
    )


def test_requests_are_refused_for_all_reasons_at_once():
    assert requests.refusal(request()) is None
    text = requests.refusal(request(return_logprob=True, ebnf="x", repetition_penalty=1.1))
    assert text is not None
    assert all(word in text for word in ("logprob", "grammars", "penalties"))


def runner(draft: bool, width: int) -> SimpleNamespace:
    model_runner = SimpleNamespace(
        server_args=SimpleNamespace(speculative_algorithm="DDTREE"), is_draft_worker=draft, attn_backend=None
    )
    return SimpleNamespace(model_runner=model_runner, num_tokens_per_bs=width)


def batch(requests: int, tokens: int) -> SimpleNamespace:
    return SimpleNamespace(
        batch_size=requests, input_ids=SimpleNamespace(numel=lambda: tokens), spec_info=None
    )


def test_a_width_that_was_not_captured_runs_without_a_graph_and_says_so_once(caplog):
    for _ in range(2):
        assert guard.can_run(lambda *_: True, runner(draft=False, width=8), batch(2, 66)) is False
    (record,) = caplog.records
    assert (
        "target worker's CUDA graphs were captured for 8 tokens a request, this batch has 33"
        in record.message
    )
    assert guard.can_run(lambda *_: True, runner(draft=True, width=8), batch(2, 16)) is True
