"""The errors a user can cause, and mend."""


class VeilmapError(ValueError):
    """Something the caller asked for cannot be done; the message says what to change.

    The command line shows the message as one line and exits with code 2, so it is
    written for the person who typed the command.
    """
