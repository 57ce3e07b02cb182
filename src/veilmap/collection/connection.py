"""How one host of a survey reaches another: HTTP over TLS, and no more of an answer than is due."""

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from veilmap._util import files
from veilmap._util.plain import DAMAGED
from veilmap.errors import ConfigurationError, DataError

_ANSWER_SECONDS = 60.0  # between two parts of an answer
_WHOLE_SECONDS = 600.0
# A compressed answer could be a thousand times as long as it looks.
PLAIN = {"accept-encoding": "identity"}
MOST_BYTES = 10_000_000  # of an answer, unless its kind can have more


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


def asked(
    client: httpx.Client,
    method: str,
    url: str,
    *,
    content: bytes = b"",
    headers: Mapping[str, str] | None = None,
    most: int = MOST_BYTES,
) -> httpx.Response:
    """What an address answers, of at most so many bytes."""
    own = {**PLAIN, **(headers or {})}
    with client.stream(method, url, content=content, headers=own) as answer:
        found = content_of(answer, most)
    return httpx.Response(
        answer.status_code, headers=answer.headers, content=found, request=answer.request
    )


def object_in(answer: httpx.Response, who: str) -> dict[str, Any]:
    """The JSON object that an answer holds; DataError where there is none."""
    try:
        content = json.loads(answer.content)
        if isinstance(content, dict):
            return content
    except DAMAGED:
        pass
    raise DataError(f"{who} answers with something else than it should")


def line_of(answer: httpx.Response) -> str:
    """The line in which an aggregator says what is wrong."""
    try:
        return files.printable(str(object_in(answer, "it")["error"]))
    except (DataError, KeyError):
        return f"it answered {answer.status_code}"


def why_of(problem: httpx.HTTPError) -> str:
    """Why there is no answer; some errors have no text of their own."""
    return str(problem) or type(problem).__name__


def content_of(answer: httpx.Response, most: int = MOST_BYTES) -> bytes:
    """The bytes of an answer that has begun."""
    if "content-encoding" in answer.headers:
        raise httpx.RemoteProtocolError("a compressed answer, which was not asked for")
    parts, size, end = [], 0, time.monotonic() + _WHOLE_SECONDS
    for part in answer.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > most or time.monotonic() > end:
            raise httpx.RemoteProtocolError(
                f"an answer of more than {most:,} bytes, or {_WHOLE_SECONDS:.0f} seconds"
            )
    return b"".join(parts)
