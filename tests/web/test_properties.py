"""Requests that nobody thought of, made up from the API's own description."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from small_surveys import surveyed
from veilmap.web.app import create_app
from webs import Recorded, make_runs, service_of

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
HEADERS = {"Host": "127.0.0.1", "X-Veilmap": "page"}

# What is asked for at random is never there: often it is one of these instead.
THERE = {
    "run": ["aligned", "sums", "bare", "town"], "user": ["0", "5"], "round": [1, 4],
    "station": ["4", "north"],
}  # fmt: skip


class Forgotten(Recorded):
    """Its queue is never full."""

    def submit(self, *arguments):
        self._jobs.clear()
        return super().submit(*arguments)


def described():
    """The operations of the API; it takes no run to describe it."""
    app = create_app(service=None)
    schema = schemathesis.openapi.from_dict(app.openapi())
    return [found.ok() for found in schema.get_all_operations()]


OPERATIONS = described()


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    place = make_runs(tmp_path_factory.mktemp("runs"))
    surveyed(place / "town")
    work = tmp_path_factory.mktemp("work")
    return create_app(service_of([place], work, jobs=Forgotten(work)))


def test_all_operations_are_known():
    assert len(OPERATIONS) == 17


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_answers_are_what_the_api_says(app, operation, mode):
    takes = operation.path_parameters or operation.query or operation.body
    if mode is GenerationMode.NEGATIVE and not takes:
        pytest.skip("there is nothing to get wrong")
    # schemathesis rewrites the pairs of a polygon into a schema that it then refuses.
    left_out = [response_schema_conformance] if operation.path.endswith("/buildings") else []
    checks = [check for check in CHECKS if check not in left_out]
    operation.schema.app = operation.app = app

    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    @settings(
        max_examples=20, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip
    def ask(case, data):
        for values in (case.path_parameters, case.query):
            for name in sorted(values & THERE.keys() if values else ()):
                values[name] = data.draw(st.sampled_from([values[name], *THERE[name]]))
        response = case.call(base_url="http://127.0.0.1", headers=HEADERS)
        case.validate_response(response, checks=checks)

    ask()
