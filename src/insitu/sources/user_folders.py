"""Folder of the user's caches: where the system has them, or below `XDG_CACHE_HOME`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["user_cache_folder"]


def user_cache_folder(name: str = "") -> Path:
    """Return the folder of one of insitu's caches; without a name, the folder that holds them.

    `XDG_CACHE_HOME` counts on every system, because messages tell users to set it.
    """
    configured = os.environ.get("XDG_CACHE_HOME")
    if configured:
        base = Path(configured)
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home()))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path.home() / ".cache"
    return base / "insitu" / name
