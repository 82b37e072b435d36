"""How long `ddtool --help` takes against the help of a bare typer application: medians and their ratio, in one run.

    python benchmarks/startup.py [RUNS]

Runs alternate, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

BARE = """
import typer
app = typer.Typer(help="A bare application.")

@app.command()
def one(name: str = typer.Option("x", help="A name.")) -> None:
    "One command."

@app.command()
def two(name: str = typer.Option("x", help="A name.")) -> None:
    "Another command."

app()
"""
ARMS = {
    "bare typer": [sys.executable, "-c", BARE, "--help"],
    "ddtool": [sys.executable, "-m", "ddtool", "--help"],
}


def seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    for command in ARMS.values():
        seconds(command)  # bytecode is written once
    times: dict[str, list[float]] = {name: [] for name in ARMS}
    for _ in range(runs):
        for name, command in ARMS.items():
            times[name].append(seconds(command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print(f"{name:12} {value * 1000:7.1f} ms (median of {runs})")
    print(f"ratio        {medians['ddtool'] / medians['bare typer']:7.2f}")


if __name__ == "__main__":
    main()
