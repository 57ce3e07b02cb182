"""Commands of veilmap, as a user types them."""

import pytest

from veilmap import cli


def run(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err
