"""ddtool sandbox: throw-away hosts on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ddtool.cli.options import JsonOpt

if TYPE_CHECKING:
    from pathlib import Path

    from ddtool.sandbox import Sandbox

app = typer.Typer(
    help="Throw-away hosts on this machine, with real systemd, journald and sshd. Needs Linux and root.",
    no_args_is_help=True,
)

DEFAULT_NAME = "demo"
Name = Annotated[str, typer.Argument(help="The sandbox's name: up to 31 of a-z, 0-9 and -.")]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="sandbox")


@app.command()
def up(
    name: Name = DEFAULT_NAME,
    bare: Annotated[bool, typer.Option("--bare", help="Without the engine: systemd, sshd, Python.")] = False,
    json: JsonOpt = False,
) -> None:
    """Boot a sandbox, or find it booted. It stays up until `down`, or until this machine reboots."""
    from ddtool import sandbox
    from ddtool.cli import output

    layers = [] if bare else _engine_layers()
    host = sandbox.up(name, layers=layers, progress=output.words)
    if json:
        output.emit("sandbox-up", {"sandbox": _describe(host)})
        return
    output.words(f"sandbox {name} is up: ddtool status --host sandbox:{name}")
    output.words(f"a shell in it: ddtool sandbox shell {name}, or ssh -F {host.ssh_config} {name}")


@app.command()
def down(
    name: Annotated[
        str | None, typer.Argument(help=f"The sandbox's name.  [default: {DEFAULT_NAME}]")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every sandbox of this machine.")] = False,
    json: JsonOpt = False,
) -> None:
    """Kill a sandbox and remove every trace of it, its disk included."""
    from ddtool import sandbox
    from ddtool.cli import output
    from ddtool.errors import UsageError

    if name and everything:
        raise UsageError("give a name or --all, not both")
    names = [host.name for host in sandbox.running()] if everything else [name or DEFAULT_NAME]
    for each in names:
        sandbox.down(each)
    if json:
        output.emit("sandbox-down", {"down": names})
    else:
        output.words(f"down: {', '.join(names) or 'nothing was up'}")


@app.command("list")
def list_(json: JsonOpt = False) -> None:
    """The sandboxes that are up."""
    from ddtool import sandbox
    from ddtool.cli import output

    hosts = sandbox.running()
    if json:
        output.emit("sandbox-list", {"sandboxes": [_describe(host) for host in hosts]})
    elif hosts:
        rows = [
            (f"sandbox:{host.name}", f"{host.address}:{host.port}", host.pid or "powered off")
            for host in hosts
        ]
        output.stdout().print(output.table(None, ("--host", "ssh", "PID 1"), rows))
    else:
        output.words("no sandbox is up: ddtool sandbox up")


@app.command()
def shell(name: Name = DEFAULT_NAME) -> None:
    """A root shell on the sandbox's console: it needs neither network nor sshd."""
    from ddtool import sandbox
    from ddtool.sandbox import console

    raise typer.Exit(console.shell(sandbox.find(name)))


def _engine_layers() -> list[Path]:
    from ddtool.cli import output
    from ddtool.sandbox import image

    return image.engine_layers(progress=output.words)


def _describe(host: Sandbox) -> dict[str, object]:
    return {
        "name": host.name,
        "host": f"sandbox:{host.name}",
        "address": host.address,
        "port": host.port,
        "user": "root",
        "ssh_config": str(host.ssh_config),
        "key": str(host.key),
        "known_hosts": str(host.known_hosts),
        "published": dict(host.published),
        "pid": host.pid,
        "state": str(host.state),
    }
