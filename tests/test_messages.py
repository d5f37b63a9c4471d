"""Messages to users keep the rules of the house. `python scripts/messages.py` prints them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from script_modules import load_script

ROOT = Path(__file__).resolve().parents[1]

RIDDLES = [
    r"\bnobody\b", r"\bmay not be\b", r"is not what it was", r"\bnothing says\b", r"\bsays no\b", r"\bnobody knows\b",
    r"\bas it was told\b", r"\bwas told\b", r"\bis not there\b", r"\bhas none of it\b",
]  # fmt: skip
"""Phrases of which a reader cannot tell what is wrong or what to do."""


@pytest.fixture(scope="module")
def messages() -> list[str]:
    return [line for line in load_script("messages").list_messages().splitlines() if line and not line.startswith("##")]


def test_messages_are_found(messages: list[str]) -> None:
    assert len(messages) > 1000
    assert any("reduction along no axis" in line for line in messages)


@pytest.mark.parametrize("riddle", RIDDLES)
def test_no_message_is_a_riddle(riddle: str, messages: list[str]) -> None:
    assert not [line for line in messages if re.search(riddle, line)]


def test_messages_do_not_shout_or_end_in_two_ways(messages: list[str]) -> None:
    """Errors are one sentence or several; they never end in an exclamation mark or a colon."""
    assert not [line for line in messages if line.endswith(("!", ":", ",", ";"))]
