"""Runs in a child with torch: a release's own ModelRunner functions, as patched, with stand-ins for what they call.

argv: a JSON file {release: path of the patched model_runner.py}. Prints one JSON object {release: answers}.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import json
import sys
import time
from types import FunctionType, SimpleNamespace
from typing import Any
from unittest import mock
from unittest.mock import MagicMock

import torch

WIDTH, VOCAB = 33, 64
GIB = 1 << 30


class Release:
    """The patched file's inserted code, executed for real, and its functions in a world of stand-ins."""

    def __init__(self, path: str) -> None:
        with open(path, encoding="utf-8") as stream:
            self.tree = ast.parse(stream.read())
        self.inserted: dict[str, Any] = {"get_available_gpu_memory": lambda *_, empty_cache: 3.5}
        marked = [node for node in self.tree.body if any(name.startswith("_ddtool_") for name in bound(node))]
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            exec(compile(ast.Module(marked, []), path, "exec"), self.inserted)
        self.at_import = said.getvalue()

    def has(self, name: str) -> bool:
        return self._find(name) is not None

    def _find(self, name: str) -> ast.FunctionDef | None:
        (runner,) = [n for n in self.tree.body if isinstance(n, ast.ClassDef) and n.name == "ModelRunner"]
        found = [n for n in runner.body if isinstance(n, ast.FunctionDef) and n.name == name]
        return found[-1] if found else None

    def call(self, name: str, *args: object, **world: object) -> str:
        """What it says on stderr. Every global is a stand-in but the inserted code, builtins and `world`."""
        node = self._find(name)
        assert node is not None
        node.returns, node.decorator_list = None, []
        for argument in (*node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        made: dict[str, Any] = {}
        exec(compile(ast.fix_missing_locations(ast.Module([node], [])), name, "exec"), made)
        code = made[name].__code__
        around = {key: MagicMock() for key in code.co_names if not hasattr(builtins, key)}
        around.update({key: value for key, value in self.inserted.items() if key.startswith("_ddtool_")})
        function = FunctionType(
            code, {**around, "__builtins__": builtins, **world}, name, made[name].__defaults__
        )
        function.__kwdefaults__ = made[name].__kwdefaults__
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            function(*args)
        return said.getvalue()


def bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


class Off:
    """Server arguments, none of which is given."""

    def __getattr__(self, name: str) -> Off:
        return self

    def __call__(self) -> Off:
        return self

    def __bool__(self) -> bool:
        return False


def runner(draft: bool = False) -> MagicMock:
    made = MagicMock(is_draft_worker=draft, tp_rank=3, device="cpu", gpu_id=0, enable_elastic_ep=False)
    made.configure_mock(
        msprobe_debugger=None, forward_pass_id=0, tp_size=1, server_args=Off(), enable_hisparse=False
    )
    made.model_config.num_nextn_predict_layers = None
    made.model_config.configure_mock(num_hidden_layers=2, num_attention_layers=2)
    made.model_config.hf_config.loop_num = 1
    return made


def batch(mode: str = "verify", bs: int = 2) -> MagicMock:
    made = MagicMock(batch_size=bs, rids=[f"request-{n}" for n in range(bs)])
    made.forward_mode.is_target_verify = lambda: mode == "verify"
    made.forward_mode.is_decode = lambda: mode == "decode"
    return made


def logits(bad: dict[tuple[int, int], float] | None = None, bs: int = 2) -> torch.Tensor:
    made = torch.arange(bs * WIDTH * VOCAB, dtype=torch.float32).reshape(bs * WIDTH, VOCAB).bfloat16()
    for place, value in (bad or {}).items():
        made[place] = value
    return made


def verify(release: Release, tensor: object, *, draft: bool = False, mode: str = "verify") -> str:
    output = MagicMock(logits_output=SimpleNamespace(next_token_logits=tensor))
    made = runner(draft)
    made._forward_raw.return_value = output
    return release.call("forward", made, batch(mode))


def nan_cases(path: str) -> dict[str, Any]:
    """Each case in a fresh copy of the guard: it reports once per worker and process."""
    nan, inf = float("nan"), float("inf")
    answers: dict[str, Any] = {"at_import": Release(path).at_import}
    answers["healthy"] = [verify(Release(path), logits())]
    answers["other_mode"] = [verify(Release(path), logits({(40, 5): nan}), mode="extend")]
    answers["no_head"] = [verify(Release(path), None)]
    one = Release(path)
    answers["nan"] = [verify(one, logits()), verify(one, logits({(40, 5): nan, (41, 0): nan}))]
    answers["once"] = [verify(one, logits({(1, 1): nan})), verify(one, logits({(2, 2): inf}), draft=True)]
    answers["inf"] = [verify(Release(path), logits({(0, 63): inf, (7, 0): -inf}))]
    answers["minus_inf"] = [verify(Release(path), logits({(65, 1): -inf}))]
    answers["deferred"] = deferred(path)
    answers["blind"] = [verify(Release(path), torch.zeros(66, VOCAB, dtype=torch.complex64))]
    return answers


class OnDevice(torch.Tensor):
    """A CPU tensor that says it is on a GPU: what the guard does then, without one."""

    is_cuda = True


class Event:
    """Completes when the test says so, as a copy that is still under way does."""

    done = False

    def record(self) -> None: ...

    def query(self) -> bool:
        return Event.done


def deferred(path: str) -> list[str]:
    """A bad pass, a pass while its copy is still under way, and one after it has arrived."""
    release, empty = Release(path), torch.empty
    plain = lambda shape, dtype, pin_memory: empty(shape, dtype=dtype)  # noqa: E731
    said = []
    with mock.patch.object(torch, "empty", plain), mock.patch.object(torch.cuda, "Event", Event):
        for Event.done, bad in (
            (False, {(34, 1): float("nan")}),
            (False, {}),
            (True, {(0, 0): float("inf")}),
        ):
            said.append(verify(release, logits(bad).as_subclass(OnDevice)))
    return said


def memory_marks(path: str) -> dict[str, str]:
    """A start as the scheduler does it: the target, then the draft worker, then the first passes."""
    release = Release(path)
    said = {"at_import": release.at_import}
    for worker, draft in (("target", False), ("draft", True)):
        made = runner(draft)
        arguments = [made, 0.0] if not release.has("alloc_memory_pool") else [made]
        said[f"{worker} initialize"] = release.call("initialize", *arguments)
        for name in ("alloc_memory_pool", "init_cuda_graphs"):
            if release.has(name):
                said[f"{worker} {name}"] = release.call(
                    name, made, *([None] if name == "alloc_memory_pool" else [True])
                )
    for step in ("extend", "decode", "decode"):
        made = runner()
        said[f"{step} {len(said)}"] = release.call("forward", made, batch(step))
    said["verify"] = release.call("forward", runner(True), batch("verify"))
    return said


def cost_us(nan_guard: str, mem_marks: str) -> dict[str, float]:
    """Microseconds on the CPU: the guard per verify pass of 33 rows by 163 840 tokens, and per pass of another kind;
    a mark, and a pass that is not marked any more."""
    wide = SimpleNamespace(logits_output=SimpleNamespace(next_token_logits=torch.zeros(WIDTH, 163840)))
    guard = Release(nan_guard).inserted["_ddtool_nan_guard"]
    marks = Release(mem_marks).inserted["_ddtool_mem_marks"]
    with contextlib.redirect_stderr(io.StringIO()):
        return {
            "verify": timed(lambda: guard(WORKER, passed(verify=True), wide), 20),
            "aminmax": timed(lambda: torch.stack(wide.logits_output.next_token_logits.aminmax(dim=-1)), 20),
            "other": timed(lambda: guard(WORKER, passed(), wide), 2000),
            "mark": timed(lambda: marks(WORKER, "load"), 1),
            "unmarked": timed(lambda: marks.decoded(WORKER, passed()), 2000),
        }


def passed(verify: bool = False) -> SimpleNamespace:
    mode = SimpleNamespace(is_target_verify=lambda: verify, is_decode=lambda: False)
    return SimpleNamespace(forward_mode=mode, batch_size=1, rids=["a"])


WORKER = SimpleNamespace(is_draft_worker=False, tp_rank=0, device="cpu", gpu_id=0)


def timed(call: Any, rounds: int) -> float:
    begun = time.perf_counter()
    for _ in range(rounds):
        call()
    return (time.perf_counter() - begun) / rounds * 1e6


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as stream:
        wanted = json.load(stream)
    answers = {}
    for release, files in wanted.items():
        answers[release] = {
            "nan-guard": nan_cases(files["nan-guard"]),
            "mem-marks": memory_marks(files["mem-marks"]),
        }
    first = next(iter(wanted.values()))
    answers["cost_us"] = cost_us(first["nan-guard"], first["mem-marks"])
    print("RESULT " + json.dumps(answers))


main()
