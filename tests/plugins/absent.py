"""The end of a run says what this machine lacks: the large corpus of real files, and whatever tests
were skipped for.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from real_files import CORPUS, FILES

KINDS = ("servers", "browser", "peers", "corpus")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print a section about what was not tested, and why."""
    skipped: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            keywords = getattr(report, "keywords", ())  # a module that is skipped as a whole has none
            kind = next((kind for kind in KINDS if kind in keywords), "other")
            skipped[kind, report.longrepr[2].removeprefix("Skipped: ")] += 1
    if CORPUS.is_dir() and not skipped:
        return
    terminalreporter.section("not tested on this machine", sep="-")
    if not CORPUS.is_dir():
        terminalreporter.line(
            "corpus: no large corpus of real files here (INSITU_CORPUS names one); the oracles ran "
            f"over {FILES.name}/ only"
        )
    for (kind, reason), count in sorted(skipped.items()):
        terminalreporter.line(f"{kind}: {count} skipped: {reason}")
