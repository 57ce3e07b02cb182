"""A federation on real hosts: its keys, its files, and its processes for a trial on one.

Flower does the work; this folder writes what Flower's commands need and starts them.
"""

from veilmap.flower.deploy.layout import Federation
from veilmap.flower.deploy.processes import Process, down, run, status, up

__all__ = ["Federation", "Process", "down", "run", "status", "up"]
