"""Configuration of the server's log: one line per event, as text or as a JSON object.

All loggers of the process, Uvicorn's too, write to standard error in the same form. A line that is
written for a request holds its id.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import Any

from insitu.errors import InsituError
from insitu.server.request_context import current_request

__all__ = ["FORMATS", "JsonFormatter", "RequestFilter", "StartFilter", "log_config"]

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")


class RequestFilter(logging.Filter):
    """Adds the id of the request to a record, and lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the id."""
        facts = current_request.get()
        record.request_id = None if facts is None else facts.id
        record.shown_id = "" if facts is None else f" [{facts.id}]"
        return True


class StartFilter(logging.Filter):
    """Removes Uvicorn's start-up line: with several workers it appears before the port accepts connections."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is another one."""
        return not str(record.msg).startswith("Uvicorn running on")


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line.

    The keys of a record's `facts` (see `request_log`) are keys of the object; a traceback is one text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the object."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "worker": os.getpid(),
        }
        if getattr(record, "request_id", None) is not None:
            entry["request_id"] = record.request_id  # type: ignore[attr-defined]
        entry |= getattr(record, "facts", {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def log_config(level: str, form: str = "text") -> dict[str, Any]:
    """Return the configuration for `logging.config`: everything to standard error, one line per event."""
    if level.lower() not in LEVELS:
        raise InsituError(f"{level!r} is not a log level", hint=f"Use one of {', '.join(LEVELS)}")
    if form not in FORMATS:
        raise InsituError(f"{form!r} is not a log format", hint=f"Use one of {', '.join(FORMATS)}")
    here = __name__
    formatters: dict[str, dict[str, str]] = {
        "text": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s%(shown_id)s"},
        "json": {"()": f"{here}.JsonFormatter"},
    }
    chosen = {"handlers": ["screen"], "level": level.upper(), "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": formatters[form]},
        "filters": {"request": {"()": f"{here}.RequestFilter"}, "start": {"()": f"{here}.StartFilter"}},
        "handlers": {
            "screen": {
                "class": "logging.StreamHandler",
                "formatter": "line",
                "filters": ["request", "start"],
                "stream": "ext://sys.stderr",
            }
        },
        "loggers": dict.fromkeys(("uvicorn", "uvicorn.error", "insitu"), chosen),
        "root": {"handlers": ["screen"], "level": "WARNING"},
    }
