"""What an aggregator counts, for Prometheus; nothing of a participant is among it."""

import hmac
import secrets
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from veilmap.collection.store import Standing

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters of one aggregator."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        own: Any = {"namespace": "veilmap", "registry": self._registry}
        self.taken = Counter("reports_taken", "Halves of reports that were stored.", **own)
        self.refused = Counter("refused", "Requests that were refused.", ["reason"], **own)
        self.expired = Counter("reports_expired", "Halves that were deleted unpaired.", **own)
        self.tokens = Counter("tokens_issued", "Invitations that were changed into tokens.", **own)
        self.jobs = Counter("aggregation_jobs", "Jobs that leader and helper have done.", **own)
        self.problems = Counter("problems", "What failed and was tried again.", ["where"], **own)
        self.uploads = Histogram(
            "upload_seconds", "From a report's headers to its receipt.", buckets=_SECONDS, **own
        )
        self._received = Gauge("reports_received", "Reports that are or were here.", **own)
        self._added = Gauge("reports_added", "Reports in the sum.", **own)
        self._unpaired = Gauge("reports_unpaired", "Reports without their other half.", **own)
        self._rejected = Gauge(
            "reports_rejected", "Reports of both aggregators that are not added.", ["reason"], **own
        )

    def text(self, standing: Standing, unpaired: int, rejected: Mapping[str, int]) -> bytes:
        """All of them, as Prometheus reads them."""
        self._received.set(standing.received)
        self._added.set(standing.added)
        self._unpaired.set(unpaired)
        for reason, count in rejected.items():
            self._rejected.labels(reason).set(count)
        return generate_latest(self._registry)

    @staticmethod
    def may_read(authorization: str, token: str) -> bool:
        """Whether a request shows the token."""
        shown = authorization.removeprefix("Bearer ").encode()
        return hmac.compare_digest(shown, token.encode())

    @staticmethod
    def new_token() -> str:
        """A token that nobody guesses."""
        return secrets.token_urlsafe(24)
