"""A start as the scheduler does it, and the first passes, through the model runner of the release."""

from __future__ import annotations

from types import ModuleType

import runner


def start(modules: dict[str, ModuleType]) -> None:
    """The target loads, allocates and captures; then the draft worker does."""
    module = modules[runner.FILE]
    for draft in (False, True):
        made = runner.runner(module, draft)
        if not hasattr(module.ModelRunner, "alloc_memory_pool"):
            runner.call(module, "initialize", made, 0.0)
            continue
        runner.call(module, "initialize", made)
        runner.call(module, "alloc_memory_pool", made)
        runner.call(module, "init_cuda_graphs", made)


def passes(modules: dict[str, ModuleType]) -> None:
    for mode, draft in (
        ("extend", False),
        ("decode", False),
        ("verify", False),
        ("verify", True),
        ("verify", True),
    ):
        runner.forward(modules[runner.FILE], mode, draft=draft)


def prompt(modules: dict[str, ModuleType]) -> None:
    runner.forward(modules[runner.FILE], "extend")


CASES = {"prompt": prompt, "start": start, "passes": passes}
EVENTS = {"prompt": [], "start": ["memory"] * 6, "passes": ["memory"] * 2}
