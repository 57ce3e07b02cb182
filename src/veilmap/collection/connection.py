"""How one host of a survey reaches another: HTTP over TLS."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from veilmap.errors import ConfigurationError

_ANSWER_SECONDS = 60.0


@contextmanager
def connected(authority: Path | None) -> Iterator[httpx.Client]:
    """A client of HTTP that trusts the usual authorities, or a private one."""
    with httpx.Client(
        verify=trusted(authority), timeout=_ANSWER_SECONDS, trust_env=False
    ) as client:
        yield client


def trusted(authority: Path | None) -> ssl.SSLContext:
    """By whom servers must be certified."""
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{authority} is no certificate of an authority: {error}", "authority"
        ) from None
