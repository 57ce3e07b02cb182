"""Small tasks that worker processes can import."""

import os
from dataclasses import dataclass

import numpy as np

from veilmap.paper.tasks import Task


@dataclass(frozen=True)
class Square(Task):
    number: float

    def run(self):
        return {"square": np.array(self.number**2), "process": np.array(os.getpid())}


@dataclass(frozen=True)
class Dies(Task):
    def run(self):
        os._exit(1)
