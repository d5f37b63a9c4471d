"""What came out of holding a file beside an oracle?

A `Finding` is one line: which object, which verdict, why. A comparison gives a list of them; the
tests fail on the verdicts in `BAD`, the table of `agreement.py` counts them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

__all__ = ["BAD", "Finding", "lines_of", "verdict_of"]

BAD = ("wrong", "crashed", "hung")
ORDER = (*BAD, "refused", "differs", "unchecked", "equal")


@dataclass(frozen=True, slots=True)
class Finding:
    """One object of one file."""

    name: str
    """The path of the dataset or group in the file; "" for the file as a whole."""
    verdict: str
    """equal; refused (an error of ours says why); unchecked (the oracle cannot read it); differs
    (on purpose, see `differences.py`); wrong; crashed (an exception that is not ours, or the
    process died); hung.
    """
    why: str = ""

    def as_json(self) -> dict[str, str]:
        """The finding as plain text."""
        return asdict(self)


def verdict_of(findings: Iterable[Finding]) -> str:
    """The worst verdict among the findings of a file, "equal" if there are none."""
    verdicts = {finding.verdict for finding in findings}
    return next((verdict for verdict in ORDER[:-1] if verdict in verdicts), "equal")


def lines_of(findings: Iterable[Finding], verdicts: Sequence[str]) -> str:
    """The findings with these verdicts as text, one a line; "" if there are none."""
    return "\n".join(f"{item.name}: {item.verdict}: {item.why}" for item in findings if item.verdict in verdicts)
