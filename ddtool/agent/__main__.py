"""`agent.pyz serve|txn|settle|evidence --state DIR --run DIR …`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ddtool.agent.registry import Context


def main() -> int:
    parser = argparse.ArgumentParser(prog="ddtool-agent")
    parser.add_argument("verb", choices=["serve", "txn", "settle", "evidence"])
    parser.add_argument("name", nargs="?", default="", help="transaction id, or unit name")
    parser.add_argument("--state", type=Path, default=Context().state)
    parser.add_argument("--run", type=Path, default=Context().run)
    parser.add_argument("--units", type=Path, default=Context().units)
    args = parser.parse_args()
    os.umask(0o077)
    ctx = Context(state=args.state, run=args.run, units=args.units)
    if args.verb == "serve":
        from ddtool.agent import server

        server.serve(ctx)
        return 0
    if args.verb == "txn":
        from ddtool.agent import executor

        return executor.run(ctx, args.name)
    if args.verb == "settle":
        from ddtool.agent.settle import settle

        return settle(ctx)
    from ddtool.agent import evidence

    evidence.after_stop(ctx, args.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
