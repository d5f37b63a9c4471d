"""The command line: `insitu VERB`, one module per verb.

Results go to standard output, everything else to standard error. Exit codes: 0 success, 1 an error
of insitu or of the system (one line, with a hint), 2 wrong usage, 3 a defect of insitu (with its
traceback), 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib.metadata import version

import typer

from insitu.cli import append, check, convert, drop, info, read, reduce, refresh, rollback, scan, serve
from insitu.cli.screen import stderr
from insitu.errors import InsituError

__all__ = ["app", "main"]

app = typer.Typer(
    name="insitu",
    help="Read archives of scientific arrays in place: scan, combine, save, read, reduce, serve.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _verb, _does in (
    ("scan", scan.scan),
    ("info", info.info),
    ("read", read.read),
    ("reduce", reduce.reduce),
    ("convert", convert.convert),
    ("append", append.append),
    ("drop", drop.drop),
    ("rollback", rollback.rollback),
    ("check", check.check),
    ("refresh", refresh.refresh),
    ("serve", serve.serve),
):
    app.command(_verb)(_does)

_state = {"debug": False}


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"insitu {version('insitu')}")
        raise typer.Exit


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    shown: bool = typer.Option(False, "--version", help="Show the version and exit.", callback=_version, is_eager=True),
) -> None:
    """Read archives of scientific arrays in place: scan, combine, save, read, reduce, serve."""
    _state["debug"] = debug


def main() -> None:
    """Run the command line."""
    os.environ.setdefault("ICECHUNK_LOG", "error")  # the library logs to standard output, which is for results
    try:
        app()
    except InsituError as problem:
        if _state["debug"]:
            raise
        _print_error(
            problem.kind, " ".join([str(problem), *(f"({note})" for note in getattr(problem, "__notes__", ()))])
        )
        sys.exit(1)
    except BrokenPipeError:  # `insitu info … | head`
        sys.stderr.close()
        sys.exit(0)
    except OSError as problem:
        if _state["debug"]:
            raise
        _print_error(
            "system", f"{problem.strerror or problem}" + (f" [in {problem.filename}]" if problem.filename else "")
        )
        sys.exit(1)
    except Exception as problem:
        if _state["debug"]:
            raise
        traceback.print_exc()
        _print_error(
            "unexpected",
            f"{type(problem).__name__}: {problem}. This is a defect of insitu: please report it, with the "
            "traceback above",
        )
        sys.exit(3)


def _print_error(kind: str, text: str) -> None:
    stderr.print(f"[bold red]{kind}[/]: {_escape_markup(text)}", highlight=False, soft_wrap=True)


def _escape_markup(text: str) -> str:
    return text.replace("[", "\\[")
