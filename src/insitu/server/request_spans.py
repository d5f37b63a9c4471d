"""OpenTelemetry traces: a span for each request, where the package `opentelemetry` is installed.

A provider of traces that the process has already (`opentelemetry-instrument insitu serve …`) is used.
Else one is made if the environment names an exporter, by the variables that OpenTelemetry specifies:
`OTEL_TRACES_EXPORTER`, or `OTEL_EXPORTER_OTLP_ENDPOINT` alone. Without both, nothing is recorded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

from insitu import __version__
from insitu.errors import InsituError

__all__ = ["RequestSpans", "check_exporter", "open_spans"]

EXPORTER_GROUP = "opentelemetry_traces_exporter"
"""Entry points by which packages offer exporters."""
FLUSH_SECONDS = 2.0
"""Seconds that the last spans get to be sent when the server stops."""


class RequestSpans:
    """Spans of requests.

    Parameters
    ----------
    tracer
        A tracer of OpenTelemetry.
    provider
        A provider that was made here and has to be shut down.
    """

    def __init__(self, tracer: Any, provider: Any = None) -> None:
        self._tracer, self._provider = tracer, provider

    @contextmanager
    def request(self, name: str, headers: Mapping[str, str], facts: dict[str, Any]) -> Iterator[Any]:
        """Give the span of one request, as a child of the one that its headers name."""
        from opentelemetry import propagate, trace

        with self._tracer.start_as_current_span(
            name, context=propagate.extract(headers), kind=trace.SpanKind.SERVER, attributes=facts
        ) as span:
            yield span

    @staticmethod
    def end(span: Any, status: int, facts: Mapping[str, Any]) -> None:
        """Add the outcome of a request to its span."""
        from opentelemetry.trace import Status, StatusCode

        span.set_attributes({key: value for key, value in facts.items() if value is not None})
        if status == 0 or status >= 500:
            span.set_status(Status(StatusCode.ERROR))

    def close(self) -> None:
        """Send what is not sent yet; a collector that does not answer is given up soon."""
        if self._provider is not None:
            sending = threading.Thread(target=self._provider.shutdown, daemon=True)
            sending.start()
            sending.join(FLUSH_SECONDS)


def check_exporter() -> None:
    """Raise an error if the environment asks for traces that the installed packages cannot send."""
    if (wanted := _wanted_exporter()) is not None:
        _load_exporter(wanted)


def open_spans() -> RequestSpans | None:
    """Return how to trace requests; None if OpenTelemetry is not installed."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    provider = None
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider) and (wanted := _wanted_exporter()):
        provider = _make_provider(_load_exporter(wanted)())
        trace.set_tracer_provider(provider)
    return RequestSpans(trace.get_tracer("insitu.server", __version__), provider)


def _wanted_exporter() -> str | None:
    """Return the exporter that the environment names; None if there is none."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    default = "otlp" if any(os.environ.get(name) for name in endpoints) else "none"
    name = os.environ.get("OTEL_TRACES_EXPORTER", "").strip() or default
    if name == "otlp":
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    return None if name == "none" else name


def _load_exporter(name: str) -> Any:
    """Return the class of the exporter of that name."""
    try:
        import opentelemetry.sdk.trace  # noqa: F401

        return next(iter(entry_points(group=EXPORTER_GROUP, name=name))).load()
    except (ImportError, StopIteration):
        raise InsituError(
            f"the environment asks for traces, but no installed package has the exporter {name!r}",
            hint="pip install 'insitu[tracing]', or set OTEL_TRACES_EXPORTER=none",
        ) from None


def _make_provider(exporter: Any) -> Any:
    """Return a provider that sends spans in batches, on a thread of its own."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # Attributes given here would come before OTEL_SERVICE_NAME.
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "insitu"}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
