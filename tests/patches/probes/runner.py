"""A release's own ModelRunner functions, called with stand-ins for everything around them. Not a probe itself."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any
from unittest import mock
from unittest.mock import MagicMock

FILE = "sglang/srt/model_executor/model_runner.py"
RANK = 3


class Off:
    """Server arguments, none of which is given."""

    def __getattr__(self, name: str) -> Off:
        return self

    def __call__(self) -> Off:
        return self

    def __bool__(self) -> bool:
        return False


def call(module: ModuleType, name: str, *arguments: object) -> object:
    """Run ModelRunner's `name`."""
    rank = mock.Mock(return_value=mock.Mock(tp_rank=RANK))
    with mock.patch("sglang.srt.runtime_context.get_parallel", rank) if later(module) else mock.MagicMock():
        return method(module, name)(*arguments)


def method(module: ModuleType, name: str) -> FunctionType:
    """ModelRunner's `name`. Every global is a stand-in but builtins and what ddtool inserted."""
    function = inspect.unwrap(getattr(module.ModelRunner, name))
    world: dict[str, Any] = {
        key: MagicMock() for key in names_in(function.__code__) if not hasattr(builtins, key)
    }
    world.update({key: value for key, value in vars(module).items() if key.startswith("_ddtool_")})
    made = FunctionType(function.__code__, {**world, "__builtins__": builtins}, name, function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def later(module: ModuleType) -> bool:
    """Whether the rank is a global of the process there, no longer the runner's own."""
    source = inspect.getsource(module.ModelRunner.__init__)
    return "tp_rank = tp_rank" not in source and "self.ps = ps" not in source


def runner(module: ModuleType, draft: bool = False) -> MagicMock:
    """A ModelRunner that has its rank where this release keeps it."""
    made = MagicMock(
        is_draft_worker=draft, device="cpu", gpu_id=0, enable_elastic_ep=False, enable_hisparse=False
    )
    made.configure_mock(msprobe_debugger=None, forward_pass_id=0, tp_size=1, server_args=Off())
    made.model_config.num_nextn_predict_layers = None
    made.model_config.configure_mock(num_hidden_layers=2, num_attention_layers=2)
    made.model_config.hf_config.loop_num = 1
    source = inspect.getsource(module.ModelRunner.__init__)
    if "self.tp_rank = tp_rank" in source:
        made.tp_rank = RANK
    else:
        del made.tp_rank
    if "self.ps = ps" in source:
        made.ps = mock.Mock(tp_rank=RANK)
    else:
        del made.ps
    return made


def batch(mode: str, bs: int = 2) -> MagicMock:
    """mode: verify, decode or extend."""
    made = MagicMock(batch_size=bs, rids=[f"request-{number}" for number in range(bs)])
    made.forward_mode.is_target_verify = lambda: mode == "verify"
    made.forward_mode.is_decode = lambda: mode == "decode"
    return made


def forward(module: ModuleType, mode: str, logits: object = None, *, draft: bool = False) -> None:
    """One pass through ModelRunner.forward, whose model answers `logits`."""
    made = runner(module, draft)
    made._forward_raw.return_value = MagicMock(logits_output=mock.Mock(next_token_logits=logits))
    call(module, "forward", made, batch(mode))
