"""Prometheus metrics: running and waiting requests, memory of sessions, duration of requests."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from segue.serve.serving import Serving

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Metrics of one server, in a registry of its own."""

    def __init__(self, serving: "Serving") -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("segue_requests", "Requests answered.", ("route", "status"), registry=self.registry)
        self.seconds = Histogram(
            "segue_request_seconds",
            "Seconds from the request to the first byte of the response.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.registry.register(_Now(serving))

    def text(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class _Now:
    """Collector of the values that are read when the metrics are requested."""

    def __init__(self, serving: "Serving") -> None:
        self._serving = serving

    def describe(self) -> list[Metric]:
        """Return nothing: the metrics are known only when they are collected."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield the current values."""
        serving = self._serving
        engine, sessions, writers = serving.engine, serving.sessions, serving.engine.writers.values()
        gauges = {
            "segue_requests_running": ("Texts being generated.", sum(writer.active for writer in writers)),
            "segue_requests_waiting": ("Requests in progress or queued.", engine.waiting),
            "segue_sessions": ("Sessions, in memory and on disk.", len(sessions)),
            "segue_sessions_in_memory": ("Sessions in memory.", sessions.in_memory()),
            "segue_session_bytes": ("Memory used by sessions, in bytes.", sessions.memory),
            "segue_ready": ("1 if the server accepts requests, 0 otherwise.", int(serving.ready)),
        }
        counters = {
            "segue_tokens_written": ("Tokens generated.", sum(writer.tokens_written for writer in writers)),
            "segue_tokens_read": ("Prompt tokens read.", sum(writer.tokens_read for writer in writers)),
            "segue_tokens_reused": ("Prompt tokens already read by a session.", serving.tokens_reused),
            "segue_steps": ("Steps of the engine.", engine.steps),
            "segue_faults": ("Engine steps that failed.", engine.faults),
            "segue_session_evictions": ("Sessions moved from memory to disk.", sessions.evictions),
            "segue_session_restores": ("Sessions restored from disk.", sessions.restores),
            "segue_session_save_failures": ("Sessions that could not be saved.", sessions.failed_saves),
        }
        for name, (about, value) in gauges.items():
            yield GaugeMetricFamily(name, about, value=value)
        for name, (about, value) in counters.items():
            yield CounterMetricFamily(name, about, value=value)
