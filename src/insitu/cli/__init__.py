"""The command line: `insitu VERB`, one module per verb.

Results go to standard output, everything else to standard error. Exit codes: 0 success, 1 an error
of insitu or of the system (one line, with a hint), 2 wrong usage, 3 a defect of insitu (with its
traceback), 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from insitu.errors import InsituError
from insitu.forking import lazy_attributes

if TYPE_CHECKING:
    from insitu.cli.verb_group import app, load_verb

__all__ = ["VERBS", "app", "load_verb", "main"]

VERBS = {
    "scan": "Find the chunks of files and show a summary; with -o, combine the files and save the references.",
    "info": "Show the contents of a file: variables, shapes, types, chunks, codecs, sizes, and what cannot be read "
    "and why.",
    "read": "Read a slice of a variable: the values that xarray shows.",
    "reduce": "Compute statistics of a variable or a formula, chunk by chunk, here or on a server next to the data.",
    "convert": "Save references in another format.",
    "copy": "Copy an archive, or a part of it, into a native store or file in chunks of another grid.",
    "advise": "Say what typical reads of an archive take, as it is and in the chunks that a copy would have.",
    "append": "Scan new files and add them to a saved archive.",
    "drop": "Remove files from a saved archive, or replace them. `insitu rollback` undoes it.",
    "rollback": "Undo the last change of a saved archive (append, drop, refresh, save).",
    "compact": "Write the references of a saved archive anew, into as few files as possible.",
    "pin": "Store a part of a saved archive as native chunks inside the store, from which it is read then.",
    "unpin": "Read pinned parts of a saved archive from the files again.",
    "check": "Check whether the source files of saved references are unchanged.",
    "refresh": "Scan the source files that have changed, and only those, and save the updated references.",
    "serve": "Run a server that decodes and reduces next to the data: for active= of insitu, PyActiveStorage and any "
    "HTTP client.",
    "explore": "Look at archives in the browser: their contents, values and chunks.",
    "cache": "Show or clear the scans that are kept on disk, so that an archive opens at once the second time.",
}
"""Each verb is the function of the same name in the module of the same name, with this summary."""
state = {"debug": False}
"""What the options before the verb say."""

__getattr__ = lazy_attributes(__name__, dict.fromkeys(("app", "load_verb"), "insitu.cli.verb_group"))


def main() -> None:
    """Run the command line."""
    os.environ.setdefault("ICECHUNK_LOG", "error")  # the library logs to standard output, which is for results
    for stream in (sys.stdout, sys.stderr):
        # A file or a pipe has the code page of the country on Windows, which lacks most letters.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        if sys.argv[1:] == ["--version"]:
            # Without typer, which takes as long to import as NumPy.
            from insitu.cli.versions import format_versions

            print(format_versions())
            sys.exit(0)
        from insitu.cli.verb_group import app

        app()
    except InsituError as problem:
        if state["debug"]:
            raise
        _print_error(
            problem.kind, " ".join([str(problem), *(f"({note})" for note in getattr(problem, "__notes__", ()))])
        )
        sys.exit(1)
    except BrokenPipeError:  # `insitu info … | head`
        sys.stderr.close()
        sys.exit(0)
    except OSError as problem:
        if state["debug"]:
            raise
        _print_error(
            "system", f"{problem.strerror or problem}" + (f" [in {problem.filename}]" if problem.filename else "")
        )
        sys.exit(1)
    except Exception as problem:
        if state["debug"]:
            raise
        import traceback  # not at the top: slow to import

        traceback.print_exc()
        _print_error(
            "unexpected",
            f"{type(problem).__name__}: {problem}. This is a defect of insitu: please report it, with the "
            "traceback above",
        )
        sys.exit(3)


def _print_error(kind: str, text: str) -> None:
    from insitu.cli.screen import stderr

    stderr.print(f"[bold red]{kind}[/]: {_escape_markup(text)}", highlight=False, soft_wrap=True)


def _escape_markup(text: str) -> str:
    return text.replace("[", "\\[")
