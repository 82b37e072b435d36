"""Every command that changes a host: the state it begins in, and the way back there from its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from support.matrix.stages import Stage
from support.world import OPERATIONS, PATCH, VARIANTS

from ddtool.deploy.deployment import Deployment
from ddtool.deploy.plan import Plan

Move = Callable[[Stage], None]
SITE = "/opt/mini/venv/lib/python3*/site-packages"
EDITED = "sglang/srt/speculative/spec_info.py"


@dataclass(frozen=True)
class Verb:
    """`setup` leads from the stage's own state to where the command begins, `back` from its end to there,
    `teardown` from there to the stage's own state."""

    command: tuple[str, ...]
    stage: str = "deployed"
    setup: tuple[Move, ...] = ()
    back: tuple[Move, ...] = ()
    teardown: tuple[Move, ...] = ()
    keeps_running: bool = False
    """The process that serves is the same one afterwards, whatever happens to the change."""
    transaction: bool = True
    """False: there is nothing to change, so nothing runs on the host but the serving agent."""
    forgets: bool = False
    """What ddtool kept of the service goes with it."""
    temporary: bool = False
    """What it changes is put back at its end."""


def mini(operation: str) -> Move:
    make, variant = OPERATIONS[operation]
    return lambda stage: stage.change(make, VARIANTS[variant])


def change(make: Callable[[Deployment], Plan]) -> Move:
    return lambda stage: stage.change(make)


def take_over_at_once(deployment: Deployment) -> Plan:
    return deployment.plan_deploy(take_over=True, restart=True)


def give_back(deployment: Deployment) -> Plan:
    return deployment.plan_remove(restore_unit=True)


def edit_by_hand(stage: Stage) -> None:
    stage.inside(f"cd {SITE} && cp -p {EDITED} /root/clean.py && echo '# ours' >> {EDITED}")


def forget_baselines(stage: Stage) -> None:
    """No command does that: what was adopted stays known. A test may."""
    stage.inside("rm -rf /var/lib/ddtool/ledger /var/lib/ddtool/objects")


def undo_edit(stage: Stage) -> None:
    forget_baselines(stage)
    stage.inside(f"cd {SITE} && cp -p /root/clean.py {EDITED}")


A, B = (tuple(word for one in VARIANTS[name] for word in ("--set", one)) for name in "AB")
PATCH_NAME = PATCH["name"]

VERBS = {
    "deploy first": Verb(
        ("deploy", "PROFILE", *A),
        setup=(mini("remove"),),
        back=(mini("remove"),),
        teardown=(mini("deploy B"), mini("deploy A")),
    ),
    "deploy new release": Verb(("deploy", "PROFILE", *B), back=(mini("deploy A"),)),
    "deploy no-op": Verb(("deploy", "PROFILE", *A), keeps_running=True, transaction=False),
    "restart": Verb(("restart",)),
    "stop": Verb(("stop",), back=(mini("start"),)),
    "start": Verb(("start",), setup=(mini("stop"),), back=(mini("stop"),), teardown=(mini("start"),)),
    "rollback": Verb(("rollback",), back=(mini("rollback"),)),
    "remove": Verb(
        ("remove",), back=(mini("deploy A"),), teardown=(mini("deploy B"), mini("deploy A")), forgets=True
    ),
    "remove --restore-unit": Verb(
        ("remove", "--restore-unit"),
        stage="made by hand",
        setup=(change(take_over_at_once),),
        back=(change(take_over_at_once),),
        teardown=(change(give_back),),
        forgets=True,
    ),
    "diag enable": Verb(
        ("diag", "enable", PATCH_NAME), back=(mini("restore without restart"),), keeps_running=True
    ),
    "diag enable --restart": Verb(("diag", "enable", PATCH_NAME, "--restart"), back=(mini("restore"),)),
    "diag disable": Verb(
        ("diag", "disable", PATCH_NAME),
        setup=(mini("diag enable without restart"),),
        back=(mini("diag enable without restart"),),
        teardown=(mini("restore without restart"),),
        keeps_running=True,
    ),
    "diag run": Verb(("diag", "run", PATCH_NAME, "--timeout", "5", *A), temporary=True),
    "restore": Verb(
        ("restore",),
        setup=(mini("diag enable without restart"),),
        back=(mini("diag enable without restart"),),
        teardown=(mini("restore without restart"),),
        keeps_running=True,
    ),
    "baseline adopt": Verb(
        ("baseline", "adopt", "my-fork"),
        setup=(edit_by_hand,),
        back=(forget_baselines,),
        teardown=(undo_edit,),
        keeps_running=True,
    ),
    "deploy --take-over": Verb(
        ("deploy", "PROFILE", "--take-over"),
        stage="made by hand",
        back=(change(give_back),),
        keeps_running=True,
    ),
    "managed install": Verb(("deploy", "PROFILE"), stage="bare", back=(change(Deployment.plan_remove),)),
}
