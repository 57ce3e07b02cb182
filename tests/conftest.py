"""Property tests draw the same cases every time; HYPOTHESIS_PROFILE=search looks for new ones."""

import os

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@pytest.fixture
def one_thread():
    """Libraries that start a thread for each core wait for one another where tests share them."""
    with threadpool_limits(1):
        yield
