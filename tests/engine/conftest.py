"""`serve`: real SGLang on the CPU. The server runs in a sandbox, where its Python and libraries are always the same."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
import yaml
from support.engine_server import EngineServer

from ddtool import profile as profiles
from ddtool import sandbox
from ddtool.profile import launch
from ddtool.sandbox.image import engine_layers

Serve = Callable[..., EngineServer]
PORTS = range(31000, 31004)


@pytest.fixture(scope="session")
def engine_host(sandbox_state: Path) -> Iterator[sandbox.Sandbox]:
    """A sandbox with SGLang, for all engine tests. Skips only off Linux or without root, and never in CI."""
    if sys.platform != "linux" or os.geteuid() != 0:
        reason = "engine tests need Linux and root"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    layers = engine_layers(print)
    yield sandbox.up("engine", layers=layers, disk="1g", memory="16g", owner=os.getpid(), publish=list(PORTS))
    sandbox.down("engine")


@pytest.fixture(scope="module")
def serve(engine_host: sandbox.Sandbox) -> Iterator[Serve]:
    """`serve("demo", **flags)` starts SGLang as that profile says and returns it ready; it stops with the test file.

    flags: SGLang's, with underscores, over the profile's own; None takes one away
    env: variables over the profile's own
    patience: for a start that takes several times as long as others
    """
    servers: list[EngineServer] = []
    numbers = count()

    def start(
        name: str = "demo", *, env: dict[str, str] | None = None, patience: float = 1.0, **flags: object
    ) -> EngineServer:
        profile = profiles.load(name)
        port = PORTS[next(numbers)]
        config = {**launch.config_file(profile, {}), "port": port, "skip-server-warmup": True}
        config |= {flag.replace("_", "-"): value for flag, value in flags.items()}
        server = EngineServer.start(
            engine_host,
            unit=f"arm-{port}",
            port=port,
            argv=[profile.engine.interpreter, "-m", "sglang.launch_server"],
            env={**launch.environment(profile, {}, release="/nonexistent"), **(env or {})},
            config=yaml.safe_dump({flag: value for flag, value in config.items() if value is not None}),
            patience=patience,
        )
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()
