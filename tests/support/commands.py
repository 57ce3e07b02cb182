"""Commands of veilmap, as a user types them."""

from unittest.mock import patch

import pytest

from veilmap import cli
from veilmap.cli import output


def run(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    # Machines that are busy take long, and what they say then depends on them.
    with patch.object(output, "QUIET_SECONDS", 3600.0), pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err
