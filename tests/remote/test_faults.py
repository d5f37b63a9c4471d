"""Hundreds of reads through a proxy that fails in every way: each value is right or an error, and
nothing is asked for more often than it may.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

import insitu
from insitu.errors import InsituError, SourceError
from insitu.sources import RetryPolicy, open_source
from insitu.sources.http.http_source import HttpSource
from insitu.sources.range_batch import RequestLimits
from insitu.sources.threads import gather
from remote.faults import FAULTS, FaultProxy
from waiting import LONG

pytestmark = pytest.mark.xdist_group("remote")  # one worker for all: each server runs once

DEADLINE = LONG
READ_SECONDS = 2.0
"""Of silence, after which a request is made again."""
ATTEMPTS = 8


def dices(count, seed):
    dice = random.Random(seed)
    return [(dice.randrange(299_000), dice.randrange(1, 900)) for _ in range(count)]


def storm(make, data, count, seed):
    """Read `count` ranges, from many threads, each by a source that knows which version it wants;
    what came of them.
    """
    outcome: Counter[str] = Counter()
    sources = [make() for _ in range(16)]

    def one(item, stop):
        number, (offset, length) = item
        try:
            if number % 10 == 0:
                ranges = [(offset, length), (offset // 2, length), (offset // 3, length)]
                found = sources[number % 16].read_many(ranges)
                right = found == [data[at : at + size] for at, size in ranges]
            else:
                right = sources[number % 16].read(offset, length) == data[offset : offset + length]
            outcome["right" if right else "WRONG"] += 1
        except SourceError as error:
            outcome[type(error).__name__ if "x.bin" in str(error) else "NAMELESS"] += 1

    gather(one, list(enumerate(dices(count, seed))), width=32)
    return outcome


def judge(outcome, count, proxy):
    print(dict(outcome), dict(proxy.happened))
    assert outcome["WRONG"] == outcome["NAMELESS"] == outcome["StaleSourceError"] == 0
    assert sum(outcome.values()) == count
    assert outcome["right"] > 0.9 * count
    assert len(proxy.requests) <= (1.2 * count + 16) * ATTEMPTS  # each tenth has three ranges
    assert all(proxy.happened[fault] for fault in FAULTS)


def test_a_web_server_in_a_storm(nginx, data):
    recorded = open_source(f"{nginx.url}/x.bin").describe()
    patience = RetryPolicy(
        read=READ_SECONDS, deadline=DEADLINE, attempts=ATTEMPTS, first_pause=0.002, longest_pause=0.05
    )
    with FaultProxy(nginx.address, share=0.2, seed=1) as proxy:
        url = f"{proxy.url}/x.bin"
        outcome = storm(
            lambda: HttpSource(url, policy=patience, expected=recorded, limits=RequestLimits(gap=0)), data, 1000, 1
        )
        judge(outcome, 1000, proxy)


def test_a_bucket_in_a_storm(seaweed, data):
    options = {"key": "AKINSITU", "secret": "hush-hush-never-shown", "endpoint_url": seaweed.url}
    recorded = open_source("s3://private/x.bin", options).describe()
    with FaultProxy(seaweed.address, share=0.08, seed=2) as proxy:
        far = {
            **options,
            "endpoint_url": proxy.url,
            "timeout": DEADLINE,
            "read_timeout": READ_SECONDS,
            "retries": ATTEMPTS,
        }
        outcome = storm(lambda: open_source("s3://private/x.bin", far, expected=recorded), data, 800, 2)
        judge(outcome, 800, proxy)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_passes(nginx, data, fault):
    patience = RetryPolicy(read=READ_SECONDS, deadline=DEADLINE, attempts=3, first_pause=0.002, longest_pause=0.05)
    with FaultProxy(nginx.address) as proxy:
        if fault == "trickle":
            proxy.stall = 0.5
        source = HttpSource(f"{proxy.url}/x.bin", policy=patience)
        source.read(0, 1)
        proxy.order(fault)
        assert source.read(1000, 500) == data[1000:1500]
        proxy.order(*[fault] * 50)
        if fault == "slow":
            assert source.read(1000, 500) == data[1000:1500]
        else:
            with pytest.raises(SourceError, match=r"bytes 1000-1500.*/x\.bin"):
                source.read(1000, 500)


def test_values_in_a_storm(nginx, archive):
    """Scans and reads of whole variables: the right values, or an error of ours."""
    truth = insitu.read(archive, "t", decode=False)
    outcome: Counter[str] = Counter()
    options = {"timeout": DEADLINE, "read_timeout": READ_SECONDS, "retries": 6}
    with FaultProxy(nginx.address, share=0.02, seed=3) as proxy:
        for number in range(12):
            try:
                group = insitu.scan(f"{proxy.url}/archive.h5", storage_options=options, decode=False)
                found = insitu.read(group, "t", np.s_[number::5], storage_options=options, decode=False)
            except InsituError as error:
                outcome[type(error).__name__] += 1
                continue
            outcome["right" if np.array_equal(found, truth[number::5]) else "WRONG"] += 1
    print(dict(outcome), dict(proxy.happened))
    assert outcome["WRONG"] == 0
    assert outcome["right"] > 0
