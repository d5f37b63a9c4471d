"""What `insitu --version` shows: the versions that a bug report needs."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import insitu
from insitu.codecs.linked_libraries import linked_libraries

__all__ = ["format_versions"]

EXTENSIONS = ("insitu.codecs._kernels", "insitu.formats.hdf5.structures._metadata", "insitu.sources._scatter")
NOT_FOR_USERS = {"bench", "check", "demo", "docs", "test"}
"""Extras of those who develop insitu."""
_REQUIREMENT = re.compile(r"""([\w.-]+).*?(?:extra == ["']([\w-]+)["'])?$""", re.DOTALL)


def format_versions() -> str:
    """Return insitu and its version in the first line, then Python, what was compiled, and the packages."""
    missing = [name for name in EXTENSIONS if not _has_file(name)]
    compiled = f"without {', '.join(missing)}" if missing else "all"
    libraries = ", ".join(sorted(linked_libraries().values())) or "none"
    return "\n".join(
        [
            f"insitu {insitu.__version__}",
            f"Python {platform.python_version()} ({platform.python_implementation()}, {platform.platform()})",
            f"compiled extensions: {compiled}; linked libraries: {libraries}",
            *(f"{name} {_installed_version(name)}" for name in sorted(set(_required_packages()), key=str.lower)),
        ]
    )


def _has_file(extension: str) -> bool:
    """Whether an extension was built. Importing it would import the packages that it lies in."""
    place = Path(insitu.__file__).parents[1].joinpath(*extension.split("."))
    return any(place.with_name(place.name + suffix).exists() for suffix in EXTENSION_SUFFIXES)


def _required_packages() -> Iterator[str]:
    """Yield the packages that insitu and its extras for users ask for."""
    for text in requires("insitu") or []:
        found = _REQUIREMENT.match(text)
        if found and found[2] not in NOT_FOR_USERS and found[1] != "insitu":
            yield found[1]


def _installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"
