"""Find the place that best explains the gradients of θ, which leave without noise."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from veilmap._util import checks
from veilmap.attacks.base import Attack, Estimates, Placed, When
from veilmap.attacks.candidates import Candidates
from veilmap.attacks.theta_likelihood import ThetaEvidence, ThetaLikelihood
from veilmap.federation.transcript import Transcript

# Likelihoods allow for where in its cell a user is: cells may be large at first.
_MOST_PLACES = 2_500


@dataclass(frozen=True)
class ThetaEstimates(Estimates):
    """The places, and the evidence that they follow from, for attacks that go on from there."""

    evidence: Mapping[When, ThetaEvidence] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ThetaInversion(Attack):
    """Reads nothing but ∂F_i/∂θ and J_i, which the paper's mechanisms send as they are.

    For every place the sums that a user there sends are normal, with a known mean and covariance;
    rounds with different broadcasts are as many exact equations about the same measurements.
    Probable cells are divided until they are some centimetres wide. The answer is the place of
    least expected distance: the middle of the map where nothing is known. Maps that learn
    offsets of base stations get the residual of every station from every user.
    """

    residual_db: float = 6.0  # σ: how far measurements are from what the best map expects
    altitude: float = 1.5  # of users above ground, in metres

    reads_theta = True
    name = "theta inversion"

    def __post_init__(self) -> None:
        checks.number("residual_db", self.residual_db, above=0)
        checks.number("altitude", self.altitude)

    def locate(self, transcript: Transcript) -> ThetaEstimates:
        """Places for each kept round, and from all of them together, with posteriors."""
        evidence = self.evidence(transcript)
        placed = {
            when: Placed(each.likelihood.clients, each.places()) for when, each in evidence.items()
        }
        posteriors = {when: each.posterior for when, each in evidence.items()}
        return ThetaEstimates(self.name, placed, posteriors, evidence=evidence)

    def evidence(self, transcript: Transcript) -> dict[When, ThetaEvidence]:
        """What θ's gradients say about all users' places, by round and for "all"."""
        rounds = self.uploads(transcript)
        candidates = Candidates.of(transcript, self.altitude, _MOST_PLACES)
        likelihood = ThetaLikelihood(
            candidates, tuple(rounds.values()), self.residual_db, len(transcript.base_stations)
        )
        chosen: dict[When, list[int]] = {number: [row] for row, number in enumerate(rounds)}
        chosen["all"] = list(range(len(rounds)))
        found = likelihood.of_candidates(list(chosen.values()))
        return dict(zip(chosen, found, strict=True))
