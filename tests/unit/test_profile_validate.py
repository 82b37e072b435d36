"""Refusals, warnings and notes: each DESIGN says must come before a host is touched."""

from __future__ import annotations

import pytest

from ddtool.data import data_folder
from ddtool.errors import ProfileError
from ddtool.profile import available, load
from ddtool.profile.validate import require_valid, validate


def levels(*overrides: str, name: str = "k26-ddtree") -> dict[str, str]:
    return {finding.key: finding.level for finding in validate(load(name, overrides))}


def test_the_real_target_can_be_deployed_and_is_told_what_to_expect() -> None:
    found = {finding.key: finding for finding in require_valid(load("k26-ddtree"))}
    assert found["server_args.num-continuous-decode-steps"].level == "warn"
    assert "never reads it" in found["server_args.num-continuous-decode-steps"].reason
    assert found["speculative.budget"].level == "note"
    assert "115 to 129 tok/s with the tree, 138 to 161 with the chain" in found["speculative.budget"].reason
    assert "short of 150" in found["objective"].reason


def test_the_chain_baseline_is_not_predicted_to_miss() -> None:
    assert set(levels(name="k26-dflash")) == {"server_args.num-continuous-decode-steps"}


@pytest.mark.parametrize("name", available([data_folder("profiles")]))
def test_every_shipped_profile_can_be_deployed(name: str) -> None:
    require_valid(load(name))


REFUSED = [
    ("service.bind", ["service.bind=0.0.0.0"]),
    ("attention_backend", ["attention_backend=flashinfer"]),
    ("attention_backend", ["attention_backend=fa3"]),
    ("attention_backend", ["attention_backend=trtllm_mla"]),
    ("server_args.prefill-attention-backend", ["server_args.prefill-attention-backend=fa3"]),
    ("server_args.page-size", ["server_args.page-size=16"]),
    ("server_args.tokenizer-worker-num", ["server_args.tokenizer-worker-num=2"]),
    ("speculative.budget", ["speculative.budget=6"]),
    ("parallel.tp", ["parallel.tp=6"]),
    ("parallel.tp", ["parallel.tp=4"]),  # the weights fill four cards
    (
        "graphs.max_bs",
        ["graphs.max_bs=48", "server_args.max-running-requests=48", "server_args.context-length=262144"],
    ),
    ("server_args.context-length", ["server_args.context-length=262144"]),
    ("engine.release", ["engine.release=0.5.11"]),
    ("drafter", ["drafter.shape.hidden=4096"]),
    ("drafter", ["drafter.shape.target_layer_ids=[1, 61]"]),
    ("speculative.block_size", ["drafter.shape.block_size=16"]),
    ("server_args.page-sizes", ["server_args.page-sizes=1"]),
    ("server_args.lora-paths", ["server_args.lora-paths=[a]"]),
    ("graphs.bs", ["graphs.max_bs=null", "graphs.bs=[1, 2]", "server_args.moe-a2a-backend=deepep"]),
]


@pytest.mark.parametrize(("key", "overrides"), REFUSED)
def test_what_cannot_work_is_refused_with_a_reason(key: str, overrides: list[str]) -> None:
    profile = load("k26-ddtree", overrides)
    refused = [finding for finding in validate(profile) if finding.level == "refuse"]
    assert key in {finding.key for finding in refused}
    assert all(finding.reason for finding in refused)
    with pytest.raises(ProfileError, match="cannot work"):
        require_valid(profile)


ALLOWED = [
    ["service.bind=0.0.0.0", "service.api_key=${env:KEY}"],
    ["speculative.budget=7"],
    ["server_args.decode-attention-backend=triton"],
    ["drafter.shape.kv_heads=4"],  # each head on two ranks
]


@pytest.mark.parametrize("overrides", ALLOWED)
def test_what_works_is_not_refused(overrides: list[str]) -> None:
    assert "refuse" not in levels(*overrides).values()


def test_grouped_heads_may_use_a_forks_flashinfer() -> None:
    shape = "{attention: gqa, layers: 8, hidden: 7168, heads: 64, kv_heads: 8, head_dim: 128, vocab: 163840}"
    grouped = [f"model.shape={shape}", "drafter.shape=null", "attention_backend=flashinfer"]
    assert levels(*grouped)["attention_backend"] == "refuse"  # stock SGLang drops the mask at capture
    assert "attention_backend" not in levels(*grouped, "engine.provider=builtin")


def test_a_forks_flags_are_not_refused() -> None:
    fork = levels("engine.provider=builtin", "server_args.speculative-ddtree-nodes=32")
    assert fork["server_args.speculative-ddtree-nodes"] == "warn"
    assert "refuse" not in fork.values()
    assert levels("engine.provider=builtin")["speculative.budget"] in ("warn", "note")


def test_a_padded_single_request_is_said() -> None:
    found = validate(
        load(
            "k26-ddtree",
            ["graphs.max_bs=8", "server_args.moe-a2a-backend=deepep", "server_args.max-running-requests=8"],
        )
    )
    assert any("264 rows" in finding.reason for finding in found)
