"""OpenTelemetry: a span for each request, as a child of the client's, by the exporter that the environment names."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from insitu.errors import InsituError
from insitu.server import Settings, create_app, request_spans
from server.in_process import Request, ask_app
from server.serving import serving

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def test_spans(spans: Any, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\1\0\0\0")
    body = {"interface_type": "file", "url": f"file://{tmp_path}/x", "dtype": "int32"}
    parent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-ID": "abc"}
    answers = ask_app(
        create_app(Settings(roots=(str(tmp_path),))),
        Request("POST", "/v2/sum", body, parent),
        Request("POST", "/v2/sum", {**body, "url": "file:///etc/passwd"}),
    )
    assert [answer.status for answer in answers] == [200, 403]
    first, second = spans.get_finished_spans()
    assert first.name == second.name == "POST v2/sum"
    assert first.kind.name == "SERVER"
    assert dict(first.attributes) == {
        "http.request.method": "POST",
        "http.route": "v2/sum",
        "client.address": "me",
        "http.response.status_code": 200,
        "http.response.body.size": first.attributes["http.response.body.size"],
        "insitu.archive": f"{tmp_path}/x",
        "insitu.request_id": "abc",
    }
    assert f"{first.context.trace_id:032x}" == TRACE
    assert f"{first.parent.span_id:016x}" == PARENT
    assert second.parent is None
    assert second.attributes["http.response.status_code"] == 403
    assert [span.status.is_ok for span in (first, second)] == [True, True]  # of the client, not of the server


def test_an_error_of_the_server(spans: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*words: Any) -> None:
        raise RuntimeError("unexpected")

    monkeypatch.setattr("insitu.server.app._scan_to_wire", fail)
    (answer,) = ask_app(create_app(Settings(roots=(str(tmp_path),))), Request("POST", "/scan", {"url": "x"}))
    assert answer.status == 500
    (span,) = spans.get_finished_spans()
    assert not span.status.is_ok


def test_the_collector_of_the_environment(tmp_path: Path) -> None:
    """With two workers; the last spans are sent when the server stops."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed")
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, args=(0.02,), daemon=True).start()
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_address[1]}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
    }
    with serving([tmp_path], tmp_path / "log", "--workers", "2", environment=environment) as server:
        assert server.get("/health", {"traceparent": f"00-{TRACE}-{PARENT}-01"}).status == 200
    collector.shutdown()
    collector.server_close()
    assert {path for path, _ in received} == {"/v1/traces"}
    assert any(bytes.fromhex(TRACE) in body and b"GET health" in body for _, body in received)
    assert all(b"insitu" in body for _, body in received)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Request for, its absence is an error that says what to install."""
    for name in ("opentelemetry", "opentelemetry.sdk", "opentelemetry.sdk.trace"):
        monkeypatch.setitem(sys.modules, name, None)
    assert request_spans.open_spans() is None
    request_spans.check_exporter()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    with pytest.raises(InsituError, match=r"insitu\[tracing\]"):
        request_spans.check_exporter()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    request_spans.check_exporter()


def test_an_exporter_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")
    with pytest.raises(InsituError, match="pigeon"):
        request_spans.check_exporter()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    request_spans.check_exporter()
