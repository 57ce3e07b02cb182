"""What a run may open: the checks before it starts, and the account while it goes on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from veilmap.errors import PrivacyError
from veilmap.federation.messages import ClientId
from veilmap.federation.participation import Participation, Turnout
from veilmap.federation.run_folder import Checkpoint, RunFolder
from veilmap.federation.server import RoundSum
from veilmap.federation.transcript import ServerSees, checked_sees
from veilmap.privacy.accounting import Ledger, calibrated
from veilmap.privacy.mechanisms import (
    AggregateGaussian,
    Mechanism,
    PrivateMechanism,
    PrivateUploads,
    PrivUnit,
)
from veilmap.privacy.mechanisms.fitting import fitted


def settled(
    mechanism: Mechanism,
    server_sees: ServerSees | None,
    participation: Participation,
    users: int,
    rounds: int,
    largest_sum: int | None = None,
) -> tuple[Mechanism, ServerSees]:
    """Mechanism with its noise fixed, and trust model; what cannot work is refused here.

    ``largest_sum`` is how many users one sum is over at most; None is all of them.
    """
    sees = checked_sees(server_sees or ("sums" if mechanism.needs_sums else "uploads"))
    if sees == "sums" and users * participation.share < 2:
        raise PrivacyError(
            f"the sum over a cohort of {max(1, int(users * participation.share))} is that user's"
            " upload: server_sees='sums' needs two users a round or more"
        )
    if mechanism.needs_sums and sees != "sums":
        raise PrivacyError(
            f"{type(mechanism).__name__} protects only sums: a single upload carries a share of"
            " the noise; train with server_sees='sums'"
        )
    if isinstance(mechanism, PrivateMechanism):
        _check_promise(mechanism, participation, users)
    if sees == "shuffled" and not isinstance(mechanism, PrivUnit):
        raise PrivacyError(
            f"{type(mechanism).__name__} has no guarantee that shuffling would amplify: train"
            " PrivUnit with server_sees='shuffled', or another mechanism without it"
        )
    rounds_each = participation.rounds_each(rounds)
    largest = max(2, int((users if largest_sum is None else largest_sum) * participation.share))
    if isinstance(mechanism, AggregateGaussian):
        if mechanism.noise_multiplier is None:
            mechanism = calibrated(mechanism, rounds_each)
        mechanism = fitted(mechanism, largest)
    elif isinstance(mechanism, PrivUnit):
        mechanism = _with_cap(mechanism, sees, int(users * participation.share), rounds_each)
    return mechanism, sees


def _with_cap(mechanism: PrivUnit, sees: ServerSees, cohort: int, rounds: int) -> PrivUnit:
    """The mechanism for so many shuffled users, of which some may be missing, or for names."""
    if sees != "shuffled" and mechanism.among is not None:
        raise PrivacyError("among: nobody shuffles uploads unless server_sees='shuffled'", "among")
    if sees == "shuffled" and mechanism.among is None:
        mechanism = replace(mechanism, among=mechanism.counted_on(cohort))
    return calibrated(mechanism, rounds) if mechanism.cap is None else mechanism


def _check_promise(mechanism: PrivateMechanism, participation: Participation, users: int) -> None:
    if mechanism.delta >= 1 / users:
        raise PrivacyError(
            f"δ = {mechanism.delta:g} is not below 1/N = {1 / users:g}: with {users} users it"
            " would allow to publish one of them; ask for a smaller δ"
        )
    missing = participation.dropout + participation.late
    if missing > mechanism.dropout:
        raise PrivacyError(
            f"{missing:.0%} of the users are expected to be missing, but the guarantee allows"
            f" for {mechanism.dropout:.0%}: the sums could not be opened; raise the mechanism's"
            " dropout"
        )


@dataclass
class Account:
    """Keeps the ledger of a run whose mechanism has a guarantee; does nothing for others.

    It is written before a sum is opened: a killed run forgets no spending.
    """

    ledger: Ledger | None
    folder: RunFolder | None
    repeats_are_free: bool  # with a seed, a resumed run opens the same sums to the same bits again

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        folder: RunFolder | None,
        seed: int | None,
        point: Checkpoint | None = None,
    ) -> "Account":
        """A new account, or the one in the folder of a run that goes on from a checkpoint."""
        if not isinstance(mechanism, PrivateMechanism):
            return cls(None, folder, True)
        if folder is None or point is None:
            return cls(Ledger(mechanism), folder, seed is not None)
        ledger = folder.load_ledger(mechanism)
        _check_ledger(ledger, folder, point)
        return cls(ledger, folder, seed is not None)

    def begin(self) -> None:
        """Write down that nothing is spent: a run without its ledger is then known to lack it."""
        if self.ledger is not None and self.folder is not None:
            self.folder.save_ledger(self.ledger)

    @property
    def mark(self) -> str:
        """By which a checkpoint names what is spent until it; empty without a guarantee."""
        return self.ledger.marks[-1] if self.ledger else ""

    @property
    def epsilon(self) -> float:
        """ε of the user who spent most; NaN without a guarantee."""
        return self.ledger.epsilon if self.ledger else float("nan")

    def affords(self, total: RoundSum, turnout: Turnout) -> bool:
        """Whether opening this sum keeps every user within the budget."""
        if self.ledger is None or self._is_free(total):
            return True
        return self.ledger.affords(_shown(self.ledger.mechanism, total, turnout))

    def open(self, total: RoundSum, turnout: Turnout) -> None:
        """Write down that this sum is opened."""
        if self.ledger is None or self._is_free(total):
            return
        shown = _shown(self.ledger.mechanism, total, turnout)
        self.ledger.spend(total.broadcast.round, shown)
        if self.folder:
            self.folder.save_ledger(self.ledger)

    def _is_free(self, total: RoundSum) -> bool:
        assert self.ledger is not None
        return self.repeats_are_free and total.broadcast.round in self.ledger.opened


def _shown(mechanism: PrivateMechanism, total: RoundSum, turnout: Turnout) -> Sequence[ClientId]:
    """Of whom a round shows something: those in its sum, or whoever may have sent an upload."""
    guarantee = mechanism.guarantee
    if isinstance(guarantee, PrivateUploads) and guarantee.among is None:
        return [user for user, asked in zip(turnout.users, turnout.invited, strict=True) if asked]
    return total.clients


def _check_ledger(ledger: Ledger, folder: RunFolder, point: Checkpoint) -> None:
    """Refuse a ledger that says less than the run's own files, or is another run's."""
    opened = [row for row in point.rows if row.opened]
    known = {row.round for row in opened} | {*folder.kept_rounds()}
    lacks = not known <= ledger.opened or (point.ledger and point.ledger not in ledger.marks)
    if lacks or sum(ledger.spent.values()) < sum(row.clients for row in opened):
        raise PrivacyError(
            f"{folder.path / 'ledger.json'} lacks sums that this run has opened: what users have"
            " spent is unknown, so it cannot go on"
        )
