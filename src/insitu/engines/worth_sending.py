"""What is small stays here: whether items are worth sending to an engine, by the time that they take.

An engine costs something before and beside the work: tasks are pickled, sent and scheduled, workers import
what they need, results travel back and are joined. 200 files of 2.6 ms, which take 0.5 s in one process, took
1.4 s on two workers. How long an item takes is not known beforehand (a NetCDF file takes milliseconds, a large
GRIB file seconds), so the work begins here, and what is left is sent as soon as it is seen to be worth it.
"""

from __future__ import annotations

__all__ = ["SENDING_SECONDS", "WorthSending"]

SENDING_SECONDS = 2.0
"""Seconds of work in this process that are worth sending: two workers save half of it, and sending it takes 0.9 s."""
FIRST_ITEMS = 5
"""Items from which on those before say how long the rest takes."""


class WorthSending:
    """Decides after each item that was done here whether the rest is worth sending.

    Parameters
    ----------
    items
        How many there are.

    Examples
    --------
    >>> rule = WorthSending(5000)
    >>> [rule.after(seconds) for seconds in (0.4, 0.003, 0.003, 0.003, 0.003)]
    [False, False, False, False, True]
    """

    def __init__(self, items: int) -> None:
        self._items = items
        self._done = 0
        self._spent = self._longest = 0.0

    def after(self, seconds: float) -> bool:
        """Note what an item took, and return whether the rest is worth sending.

        The longest one does not count: it is the first, which imports what it needs, or was interrupted. A first
        one that takes longer than sending is slow for itself: importing takes half a second.
        """
        self._done += 1
        self._spent += seconds
        self._longest = max(self._longest, seconds)
        if self._done == 1:
            return seconds > SENDING_SECONDS and self._items > 1
        if self._done < (FIRST_ITEMS if self._spent < SENDING_SECONDS else 2):
            return False
        each = (self._spent - self._longest) / (self._done - 1)
        return each * (self._items - self._done) > SENDING_SECONDS
