"""What cannot be done, and what its error has to name; how a sentence puts it is free."""

import re
from contextlib import contextmanager

import pytest


@contextmanager
def refused(kind, *named, parameter=None):
    """What is in here raises this kind of error, in one line that names all of ``named``.

    Errors that have a field for the parameter at fault are held to it by ``parameter``.
    """
    with pytest.raises(kind) as caught:
        yield caught
    message = str(caught.value)
    assert "\n" not in message
    for one in named:
        assert re.search(rf"(?<!\w){re.escape(str(one))}(?!\w)", message), message
    if parameter is not None:
        assert caught.value.parameter == parameter
