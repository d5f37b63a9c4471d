"""The list of user-visible messages is up to date, and its wording keeps the rules of the house."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

RIDDLES = [
    r"\bnobody\b", r"\bmay not be\b", r"is not what it was", r"\bnothing says\b", r"\bsays no\b", r"\bnobody knows\b",
    r"\bas it was told\b", r"\bwas told\b", r"\bis not there\b", r"\bhas none of it\b",
]  # fmt: skip
"""Phrases of which a reader cannot tell what is wrong or what to do."""


def _script():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("messages", ROOT / "scripts" / "messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_list_is_up_to_date() -> None:
    script = _script()
    listed = script.LISTED.read_text(encoding="utf-8")
    assert listed == script.list_messages(), (
        "run `python scripts/messages.py` and review the diff of tests/messages.txt"
    )


@pytest.mark.parametrize("riddle", RIDDLES)
def test_no_message_is_a_riddle(riddle: str) -> None:
    listed = _script().LISTED.read_text(encoding="utf-8").splitlines()
    assert not [line for line in listed if re.search(riddle, line)]


def test_messages_do_not_shout_or_end_in_two_ways() -> None:
    """Errors are one sentence or several; they never end in an exclamation mark or a colon."""
    listed = _script().LISTED.read_text(encoding="utf-8").splitlines()
    assert not [line for line in listed if line.endswith(("!", ":", ",", ";")) and not line.startswith("##")]
