"""What was typed beside what: an option that would be ignored is refused instead, its default too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

ALWAYS = {"yes", "json"}  # true wherever nothing is asked, too, and scripts add them to every command


def only(ctx: typer.Context, way: str, *beside: str, why: str) -> None:
    """Raises UsageError where the parameter `way` was typed, for others that it would ignore: all but `beside`."""
    from ddtool.errors import UsageError

    typed = _typed(ctx)
    ignored = [spelled for name, spelled in typed.items() if name not in {way, *beside, *ALWAYS}]
    if way in typed and ignored:
        value = ctx.params[way]
        by = f"{typed[way]} {value}" if isinstance(value, str) else typed[way]
        more = " …" if typed.keys() & beside or any(item.required for item in ctx.command.params) else ""
        raise UsageError(
            f"{by} would ignore {', '.join(ignored)}",
            why=why,
            hint=f"{ctx.command_path}{more} {by}, or the others without {typed[way]}",
        )


def needs(ctx: typer.Context, needed: str, *names: str) -> None:
    """Raises UsageError for those of `names` that were typed without `needed`, which alone gives them a meaning."""
    from ddtool.errors import UsageError

    typed = _typed(ctx)
    ignored = [typed[name] for name in names if name in typed]
    if ignored and needed not in typed:
        (wanted,) = (_spelled(item) for item in ctx.command.params if item.name == needed)
        raise UsageError(
            f"{', '.join(ignored)} would be ignored without {wanted}",
            hint=f"{ctx.command_path} … {wanted}, or leave {', '.join(ignored)} out",
        )


def _typed(ctx: typer.Context) -> dict[str, str]:
    """Parameters that were typed and could be left out → how they are spelled."""
    sources = {item: ctx.get_parameter_source(item.name or "") for item in ctx.command.params}
    return {
        item.name or "": _spelled(item)
        for item, source in sources.items()
        if not item.required and source and source.name == "COMMANDLINE"
    }


def _spelled(item: Any) -> str:
    return str(item.opts[0] if item.param_type_name == "option" else item.name.upper())
