"""What a run may open: the checks before it starts, and the account while it goes on."""

from collections.abc import Sequence
from dataclasses import dataclass

from veilmap.errors import PrivacyError
from veilmap.federation.history import HistoryRow
from veilmap.federation.participation import Participation
from veilmap.federation.run_folder import RunFolder
from veilmap.federation.server import RoundSum
from veilmap.federation.transcript import ServerSees, checked_sees
from veilmap.privacy.accounting import Ledger, calibrated
from veilmap.privacy.mechanisms import AggregateGaussian, Mechanism
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
    if isinstance(mechanism, AggregateGaussian):
        _check_promise(mechanism, participation, users)
        if mechanism.noise_multiplier is None:
            mechanism = calibrated(mechanism, participation.rounds_each(rounds))
        most = users if largest_sum is None else largest_sum
        mechanism = fitted(mechanism, max(2, int(most * participation.share)))
    return mechanism, sees


def _check_promise(mechanism: AggregateGaussian, participation: Participation, users: int) -> None:
    if mechanism.delta >= 1 / users:
        raise PrivacyError(
            f"δ = {mechanism.delta:g} is not below 1/N = {1 / users:g}: with {users} users it"
            " would allow to publish one of them; ask for a smaller δ"
        )
    missing = participation.dropout + participation.late
    if missing > mechanism.dropout:
        raise PrivacyError(
            f"{missing:.0%} of the users are expected to be missing, but the noise shares allow"
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
        played: Sequence[HistoryRow] | None = None,
    ) -> "Account":
        """A new account, or the one a folder holds of a run that has ``played`` some rounds."""
        if not isinstance(mechanism, AggregateGaussian):
            return cls(None, folder, True)
        if folder is None or played is None:
            return cls(Ledger(mechanism), folder, seed is not None)
        ledger = Ledger.from_dict(mechanism, folder.load_ledger())
        _check_ledger(ledger, folder, played)
        return cls(ledger, folder, seed is not None)

    def begin(self) -> None:
        """Write down that nothing is spent: a run without its ledger is then known to lack it."""
        if self.ledger is not None and self.folder is not None:
            self.folder.save_ledger(self.ledger.as_dict())

    @property
    def epsilon(self) -> float:
        """ε of the user who spent most; NaN without a guarantee."""
        return self.ledger.epsilon if self.ledger else float("nan")

    def affords(self, total: RoundSum) -> bool:
        """Whether opening this sum keeps every user within the budget."""
        return self.ledger is None or self._is_free(total) or self.ledger.affords(total.clients)

    def open(self, total: RoundSum) -> None:
        """Write down that this sum is opened."""
        if self.ledger is None or self._is_free(total):
            return
        self.ledger.spend(total.broadcast.round, total.clients)
        if self.folder:
            self.folder.save_ledger(self.ledger.as_dict())

    def _is_free(self, total: RoundSum) -> bool:
        assert self.ledger is not None
        return self.repeats_are_free and total.broadcast.round in self.ledger.opened


def _check_ledger(ledger: Ledger, folder: RunFolder, played: Sequence[HistoryRow]) -> None:
    """Refuse a ledger that says less than the run's own files."""
    opened = [row for row in played if row.opened]
    known = {row.round for row in opened} | {*folder.kept_rounds()}
    if not known <= ledger.opened or sum(ledger.spent.values()) < sum(r.clients for r in opened):
        raise PrivacyError(
            f"{folder.path / 'ledger.json'} lacks sums that this run has opened: what users have"
            " spent is unknown, so it cannot go on"
        )
