"""Reading from web servers: ranges, retries, deadlines, redirects, credentials and certificates.

Modules: sources/identity.py, sources/range_batch.py, sources/ranges.py, sources/remote_source.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from insitu.errors import (
    AccessError,
    NotFoundError,
    SourceError,
    StaleSourceError,
    TimedOutError,
)
from insitu.model import Source
from insitu.sources import HttpSource, RetryPolicy, open_source, read_tail
from insitu.sources.http import http_source
from insitu.sources.range_batch import RequestLimits
from waiting import LONG


def test_the_first_answer_teaches_what_the_object_is(web, data):
    source = HttpSource(web.url("file"))
    assert source.read(100, 10) == data[100:110]
    facts = source.describe()
    assert (facts.size, facts.etag, facts.modified) == (len(data), '"v1"', 1767225600.0)
    assert source.size() == len(data)
    assert [method for method, _, _ in web.requests] == ["GET"]
    assert web.ranges() == ["bytes=100-109"]
    assert web.requests[0][2]["accept-encoding"] == "identity"


def test_ranges_past_a_known_end_ask_nothing(web, data):
    source = HttpSource(web.url("file"))
    source.read(0, 1)
    assert source.read(len(data) + 5, 10) == b""
    assert source.read(len(data) - 5, 10) == data[-5:]
    assert web.ranges()[1:] == [f"bytes={len(data) - 5}-{len(data) - 1}"]


def test_a_batch_runs_at_once(web, data):
    web.delay = 0.05
    source = HttpSource(web.url("file"), limits=RequestLimits(gap=0))
    ranges = [(at * 6000, 100) for at in range(33)]
    assert source.read_many(ranges) == [data[offset : offset + 100] for offset, _ in ranges]
    assert len(web.requests) == 33
    assert web.most_under_way > 2


def test_close_ranges_are_one_request(web, data):
    source = HttpSource(web.url("file"))
    ranges = [(1000, 50), (1060, 50), (150_000, 50), (1000, 10)]
    assert source.read_many(ranges) == [data[offset : offset + length] for offset, length in ranges]
    assert sorted(web.ranges()) == ["bytes=1000-1109", "bytes=150000-150049"]


def test_connections_are_used_again(web):
    source = HttpSource(web.url("chunked"))
    ports = set()
    original = web.behave
    web.behave = lambda handler, *rest: (ports.add(handler.client_address[1]), original(handler, *rest))[1]
    for at in range(10):
        source.read(at * 1000, 100)
    assert len(ports) == 1


def test_a_server_without_ranges_is_asked_once(web, data):
    source = HttpSource(web.url("whole"))
    ranges = [(at * 20_000, 100) for at in range(10)]
    assert source.read_many(ranges) == [data[offset : offset + 100] for offset, _ in ranges]
    before = len(web.requests)
    assert source.read(5, 5) == data[5:10]
    assert source.size() == len(data)
    assert len(web.requests) == before


@pytest.mark.parametrize("mode", ["whole", "whole-chunked"])
def test_a_large_object_without_ranges_is_refused(web, mode):
    source = HttpSource(web.url(mode), limits=RequestLimits(whole=1000))
    with pytest.raises(SourceError, match=r"does not support ranges.*too large to take whole"):
        source.read(0, 10)


@pytest.mark.parametrize(("mode", "requests"), [("busy", 3), ("limited", 2), ("cut", 3), ("reset", 2), ("headless", 3)])
def test_passing_failures_are_retried(web, data, hasty, mode, requests):
    source = HttpSource(web.url(mode), policy=hasty)
    assert source.read(10, 1000) == data[10:1010]
    assert len(web.requests) == requests


@pytest.mark.parametrize("mode", ["500", "always-cut"])
def test_failures_that_stay_are_raised(web, hasty, mode):
    source = HttpSource(web.url(mode), policy=hasty)
    with pytest.raises(SourceError, match=f"attempts 4.*in http://127.*/{mode}") as caught:
        source.read(10, 1000)
    assert (caught.value.offset, caught.value.place["length"]) == (10, 1000)
    assert len(web.requests) == 4


@pytest.mark.parametrize(
    ("mode", "kind", "builtin"),
    [
        ("404", NotFoundError, FileNotFoundError),
        ("410", NotFoundError, FileNotFoundError),
        ("401", AccessError, PermissionError),
        ("403", AccessError, PermissionError),
        ("400", SourceError, OSError),
    ],
)
def test_refusals_are_not_retried(web, mode, kind, builtin):
    source = HttpSource(web.url(mode))
    with pytest.raises(kind) as caught:
        source.read(0, 10)
    assert isinstance(caught.value, builtin)
    with pytest.raises(kind):
        source.read_many([(0, 10), (100_000, 10)])
    assert len([1 for _, path, _ in web.requests if path == f"/{mode}"]) <= 3


def test_nobody_there(hasty):
    source = HttpSource("http://127.0.0.1:9/x", policy=hasty)
    with pytest.raises(SourceError, match="request failed"):
        source.read(0, 10)


@pytest.mark.parametrize("url", ["http:///nohost", "http://[bad/x", "http://host:port/x"])
def test_what_is_no_url(url):
    with pytest.raises(SourceError):
        HttpSource(url, policy=RetryPolicy(attempts=1)).read(0, 1)


def test_a_server_that_wants_a_long_pause_is_given_up_at_once(web, hasty):
    with pytest.raises(TimedOutError, match=r"no attempt succeeded within 20 s.*503"):
        HttpSource(web.url("patience"), policy=hasty).read(0, 10)
    assert len(web.requests) == 1


def test_a_server_that_trickles_meets_the_deadline(web):
    source = HttpSource(web.url("trickle"), policy=RetryPolicy(deadline=0.2))
    with pytest.raises(TimedOutError, match=r"within 0.2 s|before the deadline"):
        source.read(0, 10_000)


def test_a_silent_server_times_out(web):
    web.delay = 1.0
    source = HttpSource(web.url("file"), policy=RetryPolicy(read=0.05, attempts=2, first_pause=0.001))
    with pytest.raises(TimedOutError):
        source.read(0, 10)


def test_redirects_are_followed_once(web, data):
    source = HttpSource(web.url("moved"))
    assert source.read(0, 10) == data[:10]
    assert source.read_many([(50_000, 5), (190_000, 5)]) == [data[50_000:50_005], data[190_000:190_005]]
    assert [path for _, path, _ in web.requests] == ["/moved", "/file", "/file", "/file"]
    assert source.url == web.url("moved")


def test_an_expired_redirect_is_asked_for_again(web, data):
    source = HttpSource(web.url("expiring"))
    assert [source.read(at, 5) for at in (0, 100, 200)] == [data[at : at + 5] for at in (0, 100, 200)]
    assert [path for _, path, _ in web.requests] == [
        "/expiring", "/ticket/1", "/ticket/1", "/expiring", "/ticket/2", "/ticket/2",
    ]  # fmt: skip


def test_keys_do_not_follow_to_another_host(web, data):
    headers = {"Authorization": "Bearer s3cret", "X-Api-Key": "k", "User-Agent": "me", "Range": "bytes=0-1"}
    source = HttpSource(web.url("elsewhere"), headers=headers)
    assert source.read(0, 10) == data[:10]
    first, second = (sent for _, _, sent in web.requests)
    assert (first["authorization"], first["x-api-key"], first["user-agent"]) == ("Bearer s3cret", "k", "me")
    assert "authorization" not in second
    assert "x-api-key" not in second
    assert second["user-agent"] == "me"
    assert second["range"] == "bytes=0-9"


@pytest.mark.parametrize(("mode", "message"), [("circle", "redirects"), ("out", "no web address")])
def test_redirects_that_lead_nowhere(web, mode, message):
    with pytest.raises(SourceError, match=message):
        HttpSource(web.url(mode)).read(0, 10)


@pytest.mark.parametrize("mode", ["changing", "growing"])
def test_an_object_that_changes_between_reads_is_noticed(web, mode):
    source = HttpSource(web.url(mode))
    source.read(0, 10)
    with pytest.raises(StaleSourceError, match="changed while it was read"):
        source.read(10, 10)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("shifted", "another range"),
        ("placeless", "no valid Content-Range"),
        ("brotli", "br encoding"),
        ("double", "transfer encoding gzip"),
    ],
)
def test_answers_to_another_question_are_refused(web, hasty, mode, message):
    with pytest.raises(SourceError, match=message):
        HttpSource(web.url(mode), policy=hasty).read(10, 10)


def test_a_server_that_does_not_tell_the_size(web, data):
    source = HttpSource(web.url("sizeless"))
    assert source.read(len(data) - 5, 10) == data[-5:]
    assert source.describe().size is None
    assert source.size() == len(data)
    assert web.requests[-1][0] == "HEAD"


def test_an_empty_object(web):
    source = HttpSource(web.url("empty"))
    assert source.read(0, 10) == b""
    assert source.size() == 0
    assert source.describe().size == 0


def test_credentials_are_sent_and_never_shown(web, data):
    address = web.url("login").replace("://", "://me:secret@")
    source = HttpSource(address)
    assert source.read(0, 5) == data[:5]
    assert "secret" not in source.url + repr(source) + repr(source.describe())

    address = web.url("signed") + "?X-Amz-Signature=abc"
    source = open_source(address)
    assert source.read(0, 5) == data[:5]
    assert source.url == web.url("signed")
    with pytest.raises(AccessError) as caught:
        open_source(web.url("403") + "?X-Amz-Signature=abc").read(0, 5)
    assert "abc" not in str(caught.value)
    with pytest.raises(SourceError) as caught:
        HttpSource("http://me:secret@127.0.0.1:9/x?sig=abc", policy=RetryPolicy(attempts=1)).read(0, 5)
    assert "secret" not in str(caught.value)
    assert "abc" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_one_failure_ends_the_batch_soon(web):
    patience = RetryPolicy(attempts=50, first_pause=5, longest_pause=5)
    source = HttpSource(web.url("file"), policy=patience, limits=RequestLimits(gap=0))
    original = web.behave

    def behave(handler, mode, nth, headers, *rest):
        refused = headers["range"] == "bytes=0-9"
        return original(handler, "403" if refused else "500", nth, headers, *rest)

    web.behave = behave
    with pytest.raises(AccessError):
        source.read_many([(at * 6000, 10) for at in range(30)])
    # The pauses of the others ended with it: nobody asked a second time.
    assert len(web.ranges()) == len(set(web.ranges()))


def test_proxies_of_the_environment_are_used(web, data, monkeypatch):
    from insitu.sources.http.connections import _pools

    _pools.renew()
    monkeypatch.setenv("http_proxy", f"http://user:pass@127.0.0.1:{web.server.server_port}")
    monkeypatch.setenv("no_proxy", "direct.example")
    original = web.behave
    web.behave = lambda handler, mode, *rest: original(handler, "file", *rest)
    assert HttpSource("http://far.example/object").read(0, 5) == data[:5]
    assert web.requests[0][1] == "http://far.example/object"
    assert web.requests[0][2]["proxy-authorization"].startswith("Basic ")
    _pools.renew()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_children_have_connections_and_threads_of_their_own(web, data):
    code = """
import os, sys, zlib
from insitu.sources import HttpSource
from insitu.sources.range_batch import RequestLimits
source = HttpSource(sys.argv[1], limits=RequestLimits(gap=0))
ranges = [(at * 6000, 100) for at in range(30)]
expected = source.read_many(ranges)
source._lock.acquire()
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        os._exit(0 if source.read_many(ranges) == expected else 1)
    children.append(child)
good = source.read_many(ranges) == expected
print(good, [os.waitpid(child, 0)[1] for child in children])
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code, web.url("file")], env=env, capture_output=True, text=True, timeout=LONG
    )
    assert done.stdout.strip() == "True [0, 0]", done.stderr


def test_batches_within_batches_do_not_lock_up(web, data):
    from insitu.sources.threads import MAX_REQUESTS, gather

    source = HttpSource(web.url("file"), limits=RequestLimits(gap=0))
    ranges = [(at * 9000, 10) for at in range(20)]
    found = gather(lambda item, stop: source.read_many(ranges), range(MAX_REQUESTS + 8))
    assert all(batch == [data[offset : offset + 10] for offset, _ in ranges] for batch in found)


def test_threads_that_meet_a_whole_object_take_it_once(web, data, monkeypatch):
    source = HttpSource(web.url("whole"))
    bodies = []
    take = http_source.read_body
    monkeypatch.setattr(
        http_source,
        http_source.read_body.__name__,
        lambda *arguments, **how: (bodies.append(1), take(*arguments, **how))[1],
    )
    threads = [threading.Thread(target=source.read, args=(at, 10)) for at in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bodies) == 1


def test_what_was_recorded_is_asked_for(web, data):
    recorded = Source(web.url("conditional"), len(data), '"v1"')
    source = HttpSource(web.url("conditional"), expected=recorded)
    assert source.size() == len(data)
    assert not web.requests
    assert source.read(5, 5) == data[5:10]
    assert web.requests[0][2]["if-match"] == '"v1"'
    for stale in (Source("x", len(data), '"v0"'), Source("x", len(data) - 1, '"v1"')):
        with pytest.raises(StaleSourceError, match="not the one that was scanned"):
            HttpSource(web.url("conditional"), expected=stale).read(5, 5)
        with pytest.raises(StaleSourceError, match="not the one that was scanned"):
            open_source(web.url("file"), expected=stale).read_many([(5, 5), (100_000, 5)])


def test_the_first_version_is_asked_for_from_then_on(web):
    source = HttpSource(web.url("conditional"))
    source.read(0, 5)
    source.read(100, 5)
    assert [sent.get("if-match") for _, _, sent in web.requests] == [None, '"v1"']


def test_dates_are_conditions_where_there_is_no_etag(web, data):
    source = HttpSource(web.url("dated"), expected=Source("x", len(data), None, 1767225600.4))
    assert source.read(5, 5) == data[5:10]
    with pytest.raises(StaleSourceError):
        HttpSource(web.url("dated"), expected=Source("x", len(data), None, 1767225599.0)).read(5, 5)


def test_a_server_that_compares_wrongly_is_asked_without_conditions(web, data):
    source = HttpSource(web.url("broken-conditions"))
    assert [source.read(at, 5) for at in (0, 50, 90)] == [data[at : at + 5] for at in (0, 50, 90)]
    assert len(web.requests) == 4


def test_a_compressed_object_is_taken_whole_and_unpacked(web, data):
    source = HttpSource(web.url("gzipped"))
    assert source.read(150_000, 5) == data[150_000:150_005]
    assert source.size() == len(data)
    assert source.read(3, 5) == data[3:8]
    assert web.ranges() == ["bytes=150000-150004", ""]
    with pytest.raises(SourceError, match="too large to take whole"):
        HttpSource(web.url("gzipped"), limits=RequestLimits(whole=199_000)).read(0, 5)


def test_the_tail_takes_one_request(web, data):
    source = HttpSource(web.url("file"))
    assert read_tail(source, 16) == data[-16:]
    assert source.size() == len(data)
    assert web.ranges() == ["bytes=-16"]
    assert source.tail(300_000) == data
    for mode in ("whole", "prefixes-only"):
        assert HttpSource(web.url(mode)).tail(16) == data[-16:]
    assert HttpSource(web.url("file")).tail(300_000) == data
    assert HttpSource(web.url("file")).tail(0) == b""
    assert HttpSource(web.url("empty")).tail(5) == b""


def test_an_answer_that_contradicts_itself_is_asked_again(web, data, hasty):
    source = HttpSource(web.url("longer"), policy=hasty)
    assert source.read(10, 20) == data[10:30]
    assert len(web.requests) == 2


def test_a_head_that_never_ends_meets_the_deadline(web):
    source = HttpSource(web.url("slow-head"), policy=RetryPolicy(deadline=0.3))
    with pytest.raises(TimedOutError):
        source.read(0, 10)


def test_one_long_range_comes_over_several_connections(web, data):
    source = HttpSource(web.url("file"), limits=RequestLimits(longest=40_000))
    source.read(0, 1)
    assert source.read(1, 150_000) == data[1:150_001]
    assert len(web.requests) == 5


def test_netrc_and_cookies_lead_through_a_login_server(web, data, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\ndefault login x password y\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert HttpSource(web.url("login")).read(0, 5) == data[:5]
    assert HttpSource(web.url("cookie")).read(0, 5) == data[:5]
    assert [path for _, path, _ in web.requests][1:] == ["/cookie", "/sign-on", "/cookie"]
    # not to hosts that it does not name
    HttpSource(web.url("file").replace("127.0.0.1", "localhost")).read(0, 5)
    assert "authorization" not in web.requests[-1][2]


def test_bearer_tokens_go_where_they_were_meant_for(web, data):
    url = web.url("bearer")
    assert open_source(url, {"bearer_token": "t0ken"}).read(0, 5) == data[:5]
    assert open_source(url, {web.url(""): {"token": "t0ken"}}).read(0, 5) == data[:5]
    with pytest.raises(AccessError) as caught:
        open_source(url, {"token": "t0ken"}).read(0, 5)
    assert "t0ken" not in str(caught.value)


def test_a_busy_server_gets_fewer_requests_at_once(web, data, hasty):
    from insitu.sources.throttle import HostThrottle

    source = HttpSource(web.url("busy"), policy=hasty, limits=RequestLimits(gap=0))
    source._throttle = HostThrottle(width=32)
    ranges = [(at * 6000, 100) for at in range(33)]
    assert source.read_many(ranges) == [data[offset : offset + 100] for offset, _ in ranges]
    assert source._throttle.width == 16


def test_timeouts_and_retries_are_options(web):
    source = open_source(web.url("500"), {"timeout": 5, "retries": 1, "read_timeout": 2})
    with pytest.raises(SourceError, match="attempts 2"):
        source.read(0, 5)
    with pytest.raises(SourceError, match="must be a number"):
        open_source(web.url("500"), {"timeout": "long"})
