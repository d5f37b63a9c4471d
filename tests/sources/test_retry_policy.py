from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from insitu.sources.retry_policy import RetryPolicy, retry_after


@given(st.integers(0, 2000), st.floats(0, 1), st.none() | st.floats(0, 1000))
def test_pauses_grow_up_to_a_bound_and_respect_the_server(attempt, chance, requested):
    rules = RetryPolicy()
    pause = rules.pause(attempt, chance, requested)
    assert pause >= rules.first_pause / 2
    assert pause <= max(rules.longest_pause, requested or 0)
    assert pause >= (requested or 0)
    assert rules.pause(attempt + 1, chance) >= rules.pause(attempt, chance)


def test_retry_after():
    assert retry_after(None, 0) is None
    assert retry_after(" 12 ", 0) == 12
    assert retry_after("-3", 0) is None
    assert retry_after("Thu, 01 Jan 1970 00:00:10 GMT", 4) == 6
    assert retry_after("Thu, 01 Jan 1970 00:00:10 GMT", 40) == 0
    assert retry_after("tomorrow", 0) is None
