"""Tensor parallelism on eight cards, in one command that goes on where it was cut off:

    . tests/gpu/setup.sh && python3 tests/gpu/tp8.py --commit SHA

In order of importance: outputs and speed of all arms on a heavy target, 10,000 rounds with every rank compared and one
killed, where a round's time goes, the arms with NVLink off, which stands in for PCIe, an expert-heavy target, the weak
drafter. `--tp 2` on two cards is the rehearsal: the same commands, with smaller targets and `--repeats 1` to be short.
"""

from __future__ import annotations

import argparse

from slot import Machine, Step, execute, machine, options_of

ARMS = ["plain", "chain", "tree:32"]
# SGLang's own all-reduce goes by NVLink whatever NCCL was told
PCIE = {"env": "NCCL_P2P_DISABLE=1", "switches": "disable-custom-all-reduce"}


def steps(on: Machine, options: argparse.Namespace) -> list[Step]:
    """The dense target's size is to be chosen so that a plain step takes 8 to 11 ms on all cards together."""
    few = {"temperatures": 0, "tokens": 128, "repeats": options.repeats}
    return [
        on.heavy("tp-heavy", options.layers, options.ffn),
        on.measured(
            "arms", f"tp{on.tp}-heavy", "tp-heavy", arms=["plain@1", *ARMS], batches=[1, 4, 16], **few
        ),
        on.measured("soak", f"tp{on.tp}", "light"),
        on.measured("profile_rounds", f"tp{on.tp}-heavy", "tp-heavy", arms=["chain", "tree:32"]),
        on.measured("arms", f"tp{on.tp}-heavy-pcie", "tp-heavy", arms=ARMS, batches=1, **PCIE, **few),
        on.heavy("tp-experts", options.expert_layers, 1536, 384),
        on.measured("arms", f"tp{on.tp}-experts", "tp-experts", arms=ARMS, batches=[1, 4, 16], **few),
        on.measured(
            "arms", f"tp{on.tp}-heavy-weak", "tp-heavy", "draft-weak", arms=ARMS, batches=[1, 4, 16], **few
        ),
        on.measured(
            "arms",
            f"tp{on.tp}-experts-weak",
            "tp-experts",
            "draft-weak",
            arms=ARMS,
            batches=[1, 4, 16],
            **few,
        ),
    ]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tp", type=int, default=8)
    parser.add_argument("--layers", type=int, default=128, help="of the dense target")
    parser.add_argument("--ffn", type=int, default=49152, help="of the dense target")
    parser.add_argument("--expert-layers", type=int, default=20, help="of the one with experts; 1.8 GB each")
    parser.add_argument("--repeats", type=int, default=5, help="of each arm's pass")
    return parser


def main() -> None:
    options = options_of(parser())
    execute(steps(machine(options, options.tp), options), options.list)


if __name__ == "__main__":
    main()
