"""Surveys of real participants: two aggregators that do not collude, and their clients."""

from veilmap._util.extras import require as _require


def require() -> None:
    """Say what to install where the libraries of the collection are missing."""
    for library in (
        "cryptography",
        "fastapi",
        "httpx",
        "prometheus_client",
        "sqlalchemy",
        "uvicorn",
    ):
        _require(library, "a survey of real participants", "collect")
