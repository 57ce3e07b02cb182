"""The errors a user can cause, and mend; each kind has a class of its own.

The command line shows the message as one line and exits with code 2. Messages name Python
parameters; the command line translates those of `ConfigurationError.parameter` into flags.
"""


class VeilmapError(ValueError):
    """Something the caller asked for cannot be done; the message says what to change.

    ``remedy`` is what was tried and helps, where something was.
    """

    remedy: object = None


class DataError(VeilmapError):
    """Measurements, or a file that holds something, cannot be read, written or used."""


class ConfigurationError(VeilmapError):
    """A parameter has a value that it cannot have, alone or together with others.

    Parameters
    ----------
    message : str
    parameter : str, optional
        Name of the Python parameter, as the message spells it.
    """

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class PrivacyError(VeilmapError):
    """A privacy guarantee would not hold, or would hold for less than is claimed."""


class RunFolderError(VeilmapError):
    """A run's folder is taken, damaged, locked, or does not belong to what is asked of it."""


class PluginError(VeilmapError):
    """What another package adds cannot be used: it fails to import, or is not what it should be."""


class MissingExtraError(VeilmapError):
    """A library of an optional extra is not installed.

    Parameters
    ----------
    message : str
    extra : str
        Of veilmap, for ``pip install 'veilmap[extra]'``.
    """

    def __init__(self, message: str, extra: str) -> None:
        super().__init__(message)
        self.extra = extra
