"""Some of what `make fuzz` feeds to every reader of a file."""

import warnings

import pytest

from file_parsers import all_parsers
from fuzzing import fed, fuzzed

INPUTS = 60


@pytest.fixture(scope="module")
def parsers(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return all_parsers(tmp_path_factory.mktemp("fuzzed"))


def test_every_reader_takes_its_own_files(parsers):
    for parser in parsers:
        for content in parser.corpus:
            assert fed(parser, content) == "taken", parser.name


def test_no_damaged_file_gives_more_than_one_clear_line(parsers):
    refused = 0
    for parser in parsers:
        outcomes, problems = fuzzed(parser, 0, 0, INPUTS)
        assert not problems, parser.name
        refused += outcomes["refused"]
    assert refused > 10 * len(parsers)  # or nothing would be damaged


def test_a_reader_that_fails_is_noticed(parsers):
    class Broken:
        name, path, corpus = "broken", parsers[0].path, [b"a"]

        @staticmethod
        def read(_path):
            return {}["x"]

    outcomes, problems = fuzzed(Broken, 0, 0, 3)
    assert outcomes == {"wrong": 3}
    assert "KeyError" in next(iter(problems))
    parsers[0].path.write_bytes(parsers[0].corpus[0])
