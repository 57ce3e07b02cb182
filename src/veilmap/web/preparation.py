"""What attacks need for a round is made beside the answers, which do not wait for it."""

import threading

from veilmap.auditing.exposure import Witness


class Preparation:
    """Prepares one round at a time; asked again for the same one it goes on."""

    def __init__(self) -> None:
        self._at_work: set[tuple[int, int]] = set()
        self._changing = threading.Lock()
        self._one_at_a_time = threading.Lock()

    def begin(self, witness: Witness, number: int) -> None:
        """Start to prepare a round, unless it is or is being."""
        key = (id(witness), number)
        with self._changing:
            if witness.prepared(number) or key in self._at_work:
                return
            self._at_work.add(key)
        threading.Thread(target=self._prepare, args=(witness, number, key), daemon=True).start()

    def _prepare(self, witness: Witness, number: int, key: tuple[int, int]) -> None:
        try:
            with self._one_at_a_time:
                witness.prepare(number)
        finally:
            with self._changing:
                self._at_work.discard(key)
