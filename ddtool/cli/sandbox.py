"""ddtool sandbox: throw-away hosts on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ddtool.sandbox import Sandbox

app = typer.Typer(
    help="Throw-away hosts on this machine, with real systemd, journald and sshd. Needs Linux and root.",
    no_args_is_help=True,
)

DEFAULT_NAME = "demo"
Name = Annotated[str, typer.Argument(help="The sandbox's name: up to 31 of a-z, 0-9 and -.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def up(
    name: Name = DEFAULT_NAME,
    bare: Annotated[bool, typer.Option("--bare", help="Without the engine: systemd, sshd, Python.")] = False,
    as_json: Json = False,
) -> None:
    """Boot a sandbox, or find it booted. It stays up until `down`, or until this machine reboots."""
    from ddtool import sandbox

    layers = [] if bare else _engine_layers()
    host = sandbox.up(name, layers=layers, progress=_progress)
    if as_json:
        typer.echo(json.dumps(_describe(host)))
        return
    typer.echo(f"sandbox {name} is up: ddtool status --host sandbox:{name}")
    typer.echo(f"a shell in it: ddtool sandbox shell {name}, or ssh -F {host.ssh_config} {name}")


@app.command()
def down(
    name: Annotated[
        str | None, typer.Argument(help=f"The sandbox's name.  [default: {DEFAULT_NAME}]")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every sandbox of this machine.")] = False,
    as_json: Json = False,
) -> None:
    """Kill a sandbox and remove every trace of it, its disk included."""
    from ddtool import sandbox
    from ddtool.errors import UsageError

    if name and everything:
        raise UsageError("give a name or --all, not both")
    names = [host.name for host in sandbox.running()] if everything else [name or DEFAULT_NAME]
    for each in names:
        sandbox.down(each)
    typer.echo(json.dumps({"down": names}) if as_json else f"down: {', '.join(names) or 'nothing was up'}")


@app.command("list")
def list_(as_json: Json = False) -> None:
    """The sandboxes that are up."""
    from ddtool import sandbox

    hosts = sandbox.running()
    if as_json:
        typer.echo(json.dumps([_describe(host) for host in hosts]))
        return
    for host in hosts:
        power = f"pid {host.pid}" if host.pid else "powered off"
        typer.echo(f"{host.name:<20} {host.address}:{host.port:<6} {power:<12} --host sandbox:{host.name}")


@app.command()
def shell(name: Name = DEFAULT_NAME) -> None:
    """A root shell on the sandbox's console: it needs neither network nor sshd."""
    from ddtool import sandbox
    from ddtool.sandbox import console

    raise typer.Exit(console.shell(sandbox.find(name)))


def _engine_layers() -> list[Path]:
    from ddtool.sandbox import image

    return image.engine_layers(progress=_progress)


def _progress(message: str) -> None:
    typer.echo(message, err=True)


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
