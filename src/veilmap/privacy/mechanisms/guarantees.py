"""What a mechanism promises, as data: `accounting` reads it and computes nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NoGuarantee:
    """No (ε, δ), and why not, in words."""

    reason: str


@dataclass(frozen=True)
class PrivateSums:
    """Every sum that is opened is zero-concentrated differentially private for each user.

    Attributes
    ----------
    rho : float
        ρ-zCDP of one opened sum for one user who is certainly in it.
    sampling : float
        Probability that a user is in it at all, decided secretly by the user.
    adjacency : str
        Which two data sets cannot be told apart.
    covers : tuple of str
        What of a user's data the promise is about.
    """

    rho: float
    sampling: float = 1.0
    adjacency: str = "one user's contributions to all rounds replaced by nothing"
    covers: tuple[str, ...] = ("gradient of the heights", "gradient of θ", "number of links")


Guarantee = NoGuarantee | PrivateSums
