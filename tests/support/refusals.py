"""What cannot be done, and what its error has to name; how a sentence puts it is free."""

import re
from contextlib import contextmanager

import pytest


@contextmanager
def refused(kind, *named, **fields):
    """What is in here raises this kind of error, in one line that names all of ``named``.

    Fields of the error are as given, such as ``parameter="users"`` or ``extra="geo"``.
    """
    with pytest.raises(kind) as caught:
        yield caught
    message = str(caught.value)
    assert "\n" not in message
    for one in named:
        assert re.search(rf"(?<!\w){re.escape(str(one))}(?!\w)", message), message
    assert {name: getattr(caught.value, name) for name in fields} == fields
