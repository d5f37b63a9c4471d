"""The command `insitu` as typer has it: a group of verbs that are imported when they run."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from insitu.cli import VERBS, state

__all__ = ["app", "load_verb"]


class VerbGroup(TyperGroup):
    """Commands whose modules are imported when they run: `insitu --help` waits for none of them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=text) for name, text in VERBS.items()}  # enough to list them

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Return the verb that is to run."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if name is None or found is None else load_verb(name), rest


def load_verb(name: str) -> Any:
    """Return the command of a verb."""
    holder = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    module = import_module(f"insitu.cli.{name}")
    holder.command(name, context_settings=getattr(module, "CONTEXT_SETTINGS", None))(getattr(module, name))
    return get_command(holder)


app = typer.Typer(
    name="insitu",
    cls=VerbGroup,
    help="Read archives of scientific arrays in place: scan, combine, save, read, reduce, serve.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        from insitu.cli.versions import format_versions

        typer.echo(format_versions())
        raise typer.Exit


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    shown: bool = typer.Option(
        False,
        "--version",
        help="Show the versions of insitu, Python and the packages it uses, and exit.",
        callback=_version,
        is_eager=True,
    ),
) -> None:
    """Read archives of scientific arrays in place: scan, combine, save, read, reduce, serve."""
    state["debug"] = debug
