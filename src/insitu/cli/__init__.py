"""The command line: the verbs of the library, one file each.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 an error of ours (one line, with the way out),
2 wrong usage.
"""

from __future__ import annotations

import sys

import typer

from insitu.cli import append, check, convert, demo, info, read, reduce, refresh, scan, serve
from insitu.cli.screen import problems
from insitu.errors import InsituError

__all__ = ["app", "main"]

app = typer.Typer(
    name="insitu",
    help="Look into archives of scientific arrays without copying them.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("scan")(scan.scan)
app.command("info")(info.info)
app.command("read")(read.read)
app.command("convert")(convert.convert)
app.command("append")(append.append)
app.command("check")(check.check)
app.command("refresh")(refresh.refresh)
app.command("reduce")(reduce.reduce)
app.command("serve")(serve.serve)
app.command("demo")(demo.demo)

_state = {"debug": False}


@app.callback()
def options(debug: bool = typer.Option(False, "--debug", help="Show the whole traceback of an error.")) -> None:
    """Options of every verb."""
    _state["debug"] = debug


def main() -> None:
    """Run the command line."""
    try:
        app()
    except InsituError as problem:
        if _state["debug"]:
            raise
        problems.print(f"[bold red]{problem.kind}[/]: {_escaped(str(problem))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except BrokenPipeError:  # `insitu info … | head`
        sys.stderr.close()
        sys.exit(0)


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")
