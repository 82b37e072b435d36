"""Widths, SGLang's capture filter, memory and the prediction, against numbers worked out from its source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtool.profile import Profile, load
from ddtool.profile.derived import capture_multiple, captures, filter_sizes, requested_sizes, widths
from ddtool.profile.memory import GIB, plan, triton_buffers
from ddtool.profile.prediction import predict
from ddtool.profile.shapes import shape_from_config

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 16, 24]


def k26(*overrides: str) -> Profile:
    return load("k26-ddtree", overrides)


def test_tokens_per_request() -> None:
    assert [(width.worker, width.tokens) for width in widths(k26())] == [("target", 33), ("draft", 8)]
    assert [(width.worker, width.tokens) for width in widths(load("k26-dflash"))] == [
        ("target", 8),
        ("draft", 8),
    ]
    plain = k26("speculative.algorithm=NONE")
    assert [(width.worker, width.tokens) for width in widths(plain)] == [("target", 1)]


# The table of SGLang's filter for tp 8: settings, multiple, sizes kept at widths 8, 33 and 32.
EIGHTS = [8, 16, 24]
FILTER = [
    ([], 1, SIZES, SIZES, SIZES),
    (["server_args.moe-a2a-backend=deepep"], 8, SIZES, EIGHTS, SIZES),
    (["server_args.moe-dense-tp-size=1"], 8, SIZES, EIGHTS, SIZES),
    (["server_args.enable-dp-attention=true", "server_args.dp-size=2"], 4, SIZES, [4, 8, 16, 24], SIZES),
    (["server_args.enable-dp-attention=true", "server_args.dp-size=8"], 1, SIZES, SIZES, SIZES),
    (["server_args.attn-cp-size=2"], 2, SIZES, [2, 4, 6, 8, 16, 24], SIZES),
    (["server_args.enable-two-batch-overlap=true"], 2, *[[2, 4, 6, 8, 16, 24]] * 3),
]


@pytest.mark.parametrize(("settings", "multiple", "at_8", "at_33", "at_32"), FILTER)
def test_the_filter_follows_sglang(
    settings: list[str], multiple: int, at_8: list[int], at_33: list[int], at_32: list[int]
) -> None:
    sizes = ["graphs.max_bs=null", f"graphs.bs={SIZES}", "server_args.max-running-requests=512"]
    for budget, expected in ((32, at_33), (31, at_32)):
        profile = k26(*sizes, *settings, f"speculative.budget={budget}")
        assert capture_multiple(profile).value == multiple
        target, draft = captures(profile)
        assert target.kept == expected
        assert draft.kept == at_8
        assert {*target.kept, *(item.batch for item in target.dropped)} == set(SIZES)


def test_reasons_are_said() -> None:
    assert "no gathered buffer" in capture_multiple(k26()).reason
    gathered = capture_multiple(k26("server_args.moe-a2a-backend=deepep"))
    assert gathered.reason == "moe-a2a-backend deepep gathers over 8 attention ranks"
    target, _ = captures(
        k26("server_args.moe-a2a-backend=deepep", "graphs.max_bs=8", "server_args.max-running-requests=8")
    )
    assert target.kept == [8]
    assert target.dropped[0].why == "1 × 33 tokens is no multiple of 8"


def test_the_full_batch_gets_a_graph() -> None:
    kept, dropped = filter_sizes([1, 2, 4, 8, 16], 33, 1, 6)
    assert kept == [1, 2, 4, 6]
    assert [item.batch for item in dropped] == [8, 16]


@given(
    st.lists(st.integers(1, 512), min_size=1, max_size=40),
    st.integers(1, 66),
    st.integers(1, 16),
    st.integers(1, 600),
)
def test_the_filter_keeps_only_what_divides_and_fits(
    requested: list[int], width: int, multiple: int, requests: int
) -> None:
    kept, dropped = filter_sizes(requested, width, multiple, requests)
    limit = -(-requests // multiple) * multiple
    assert kept == sorted(set(kept))
    assert all(size * width % multiple == 0 and size <= limit for size in kept)
    assert all(item.batch * width % multiple or item.batch > limit for item in dropped)
    assert set(requested) <= {*kept, *(item.batch for item in dropped)}
    if max(requested) > limit:
        assert limit in kept


def test_default_sizes_as_sglang_builds_them() -> None:
    speculative = requested_sizes(k26("graphs.max_bs=300"))
    assert speculative[:9] == [1, 2, 3, 4, 5, 6, 7, 8, 10]
    assert speculative[-4:] == [256, 272, 288, 300]
    assert len(speculative) == 8 + 12 + 7 + 24 + 2 + 1
    plain = requested_sizes(k26("graphs.max_bs=24", "speculative.algorithm=NONE"))
    assert plain == [1, 2, 4, 8, 12, 16, 24]
    assert requested_sizes(k26("graphs.max_bs=3", "server_args.disable-cuda-graph-padding=true")) == [1, 2, 3]
    assert captures(k26("graphs.enabled=false")) == []


def test_triton_buffers_of_kimi_at_sglangs_defaults() -> None:
    shape = k26().model.shape
    assert shape is not None
    wide = triton_buffers("target", shape, 48 * 33, 262144, tp=8, sms=132)
    assert wide.splits == 256
    assert round(wide.attn_logits / GIB, 1) == 6.2
    assert round(wide.kv_indices / GIB, 1) == 3.1
    assert round(wide.custom_mask / GIB, 2) == 0.39
    narrow = triton_buffers("draft", shape, 48 * 8, 262144, tp=8, sms=132)
    assert round(narrow.attn_logits / GIB, 1) == 1.5


def test_grouped_heads_keep_the_base_splits() -> None:
    drafter = k26().drafter
    assert drafter is not None
    assert drafter.shape is not None
    buffers = triton_buffers("draft", drafter.shape, 32, 4096, tp=8, sms=188)
    assert buffers.splits == 8
    assert buffers.attn_logits == 32 * 8 * 8 * 128 * 4
    assert drafter.shape.kv_bytes_per_token(8, 2) == 2 * 1 * 128 * 6 * 2


def test_k26_fits_its_cards() -> None:
    estimate = plan(k26())
    assert estimate is not None
    assert estimate.kv_bytes_per_token == (512 + 64) * 2 * (61 + 6)
    assert estimate.pool_tokens > estimate.context
    assert estimate.outside_needed < estimate.outside


def test_no_estimate_without_facts() -> None:
    assert plan(k26("parallel.card=null")) is None
    assert plan(k26("model.shape=null")) is None


def test_prediction_reproduces_the_published_arithmetic() -> None:
    made = predict(k26())
    assert made is not None
    assert made.tree is not None
    assert made.break_even_ms is not None
    assert [round(value) for value in made.chain] == [138, 161]
    assert [round(value) for value in made.tree] == [115, 129]
    assert [round(value) for value in made.break_even_ms] == [29, 31]
    assert made.tree_loses
    assert predict(k26("parallel.card.name=H200")) is None


def test_shapes_come_from_config_json() -> None:
    kimi = shape_from_config(
        {
            "text_config": {
                "num_hidden_layers": 61,
                "hidden_size": 7168,
                "num_attention_heads": 64,
                "num_key_value_heads": 64,
                "v_head_dim": 128,
                "kv_lora_rank": 512,
                "qk_rope_head_dim": 64,
                "vocab_size": 163840,
                "max_position_embeddings": 262144,
                "dtype": "bfloat16",
            }
        },
        554,
    )
    assert kimi == k26().model.shape
    draft = shape_from_config(
        {
            "num_hidden_layers": 2,
            "hidden_size": 128,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 1024,
            "torch_dtype": "float32",
            "block_size": 8,
            "dflash_config": {"target_layer_ids": [0, 1, 2], "mask_token_id": 1023},
        }
    )
    assert (draft.attention, draft.head_dim, draft.block_size, draft.mask_token_id) == ("gqa", 32, 8, 1023)
