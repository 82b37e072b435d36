"""SGLang's own choice of a graph's width, for the workers of a fork with DDTREE, of DFLASH, and of others."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import fakes
from fakes import BLOCK, RUNNER_V1, RUNNER_V2, TREE

MODEL_RUNNER = "sglang/srt/model_executor/model_runner.py"


def worker(draft: bool, algorithm: str, given: int, budget: int | None, model: str = "DFLASH") -> Any:
    """A ModelRunner of a server where the algorithm is this name, and behaves as the enum member `model` does."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    arguments = MagicMock(
        speculative_num_draft_tokens=given, speculative_algorithm=algorithm, speculative_num_steps=1
    )
    arguments.configure_mock(
        speculative_ddtree_budget=budget, speculative_dflash_block_size=None, device="cpu"
    )
    config = SimpleNamespace(block_size=BLOCK, dflash_config={"block_size": BLOCK}, num_hidden_layers=2)
    made = MagicMock(**vars(fakes.model_runner(draft)), server_args=arguments, device="cpu")
    made.use_ngram_embedding = False
    made.spec_algorithm = SpeculativeAlgorithm[model]
    made.model_config.hf_config = config
    return made


def v1_width(module: ModuleType, runner: Any) -> int:
    """What CudaGraphRunner.__init__ asks batch sizes for."""
    asked: list[int] = []
    with v1_world(module, asked):
        made = object.__new__(module.CudaGraphRunner)
        fakes.until_stopped(lambda: module.CudaGraphRunner.__init__(made, runner))
    assert asked == [made.num_tokens_per_bs]
    return asked[0]


def v1_world(module: ModuleType, asked: list[int]) -> AbstractContextManager[None]:
    """CudaGraphRunner.__init__ goes up to its question for batch sizes, and its width is then in `asked`."""

    def ask(_: object, width: int) -> None:
        asked.append(width)
        raise fakes.Stop

    stand_ins = {
        name: MagicMock()
        for name in vars(module)
        if name.startswith(("get_attention_", "require_", "is_nsa_"))
    }
    stand_ins |= {"is_dsa_enable_prefill_cp": MagicMock(), "is_mla_prefill_cp_enabled": MagicMock()}
    stand_ins |= {"should_record_nolora_graph": MagicMock(), "get_batch_sizes_to_capture": ask}
    nothing = SimpleNamespace(from_server_args=lambda _: None)
    return fakes.replaced(module, DllmConfig=nothing, **stand_ins)


def v2_width(module: ModuleType, runner: Any) -> int:
    given = runner.server_args.speculative_num_draft_tokens
    bag = SimpleNamespace(speculative_num_draft_tokens=given)
    method = (
        getattr(module.ModelRunner, "decode_num_tokens_per_req", None)
        or module.ModelRunner.decode_num_tokens_per_bs
    )
    with fakes.replaced(module, get_spec=lambda: bag):
        return int(method(runner, num_draft_tokens=given))


def verify_input(file: str, module: ModuleType, runner: Any, width: int) -> list[int]:
    """Width of the verify input that is captured along, and of the attention backend."""
    graphs = MagicMock(
        num_tokens_per_bs=width, model_runner=runner, attn_backend=SimpleNamespace(num_draft_tokens=-1)
    )
    kind = module.CudaGraphRunner if file == RUNNER_V1 else module.DecodeCudaGraphRunner
    spec_info = kind.get_spec_info(graphs, width)
    return [spec_info.draft_token_num, graphs.attn_backend.num_draft_tokens]


def case(**about: Any) -> Any:
    def run(modules: dict[str, ModuleType]) -> Any:
        runner = worker(**about)
        if RUNNER_V1 in modules:
            width = v1_width(modules[RUNNER_V1], runner)
        else:
            width = v2_width(modules[MODEL_RUNNER], runner)
        places = [file for file in (RUNNER_V1, RUNNER_V2) if file in modules and "model" not in about]
        return {
            "width": width,
            "captured": [verify_input(file, modules[file], runner, width) for file in places],
        }

    return run


CASES = {
    "dflash_draft": case(draft=True, algorithm="DFLASH", given=BLOCK, budget=None),
    "dflash_target": case(draft=False, algorithm="DFLASH", given=BLOCK, budget=None),
    "eagle_target": case(draft=False, algorithm="EAGLE", given=4, budget=None, model="EAGLE"),
    "tree_draft": case(draft=True, algorithm="DDTREE", given=TREE, budget=32),
    "tree_target": case(draft=False, algorithm="DDTREE", given=BLOCK, budget=32),
    "tree_without_flag": case(draft=False, algorithm="DDTREE", given=TREE, budget=None),
}
EVENTS = {
    "dflash_draft": [],
    "dflash_target": [],
    "eagle_target": [],
    "tree_draft": ["changed"],
    "tree_target": ["changed"],
    "tree_without_flag": [],
}
