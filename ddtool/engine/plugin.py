"""SGLang's entry point into the engine, run first thing in its main process and in every scheduler process."""

from __future__ import annotations

import logging
from typing import Any

from . import NAME, RELEASES, flags

logger = logging.getLogger(__name__)

ARGUMENTS = "sglang.srt.server_args.ServerArgs"


def load() -> None:
    """Register DDTREE and the hooks it needs.

    SGLang only logs what an entry point raises, and then does not know the name DDTREE; so doctor runs this in a
    child process and looks at who answers.
    """
    import sglang
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    from .v1 import algorithm, arguments, guard, requests

    if sglang.__version__ not in RELEASES:
        raise RuntimeError(
            f"DDTREE adapts to SGLang {' and '.join(RELEASES)}, not to {sglang.__version__}: install one of these."
        )
    if NAME in SpeculativeAlgorithm.__members__:
        raise RuntimeError(
            f"this SGLang has a {NAME} of its own, which would answer instead of ddtool's: "
            "set `engine.provider: builtin` in the profile, or use a stock SGLang."
        )
    HookRegistry.register(f"{ARGUMENTS}.add_cli_args", flags.add_flags, HookType.AROUND)
    HookRegistry.register(f"{ARGUMENTS}.from_cli_args", flags.take_flags, HookType.AROUND)
    HookRegistry.register(
        "sglang.srt.managers.scheduler.validate_dflash_request", requests.validate, HookType.AROUND
    )
    HookRegistry.register(
        "sglang.srt.model_executor.cuda_graph_runner.CudaGraphRunner.can_run", guard.can_run, HookType.AROUND
    )

    def worker(server_args: Any) -> type:
        from .v1.worker import DDTreeWorker

        return DDTreeWorker

    SpeculativeAlgorithm.register(
        NAME,
        supports_overlap=False,
        validate_server_args=arguments.apply,
        spec_class=algorithm.DDTreeAlgorithm,
    )(worker)
