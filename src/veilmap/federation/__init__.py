"""Clients that hold their own data, a server that sees only what they send."""

from veilmap.federation.history import HistoryRow
from veilmap.federation.messages import Broadcast, Update
from veilmap.federation.model import Model
from veilmap.federation.moving import OnePlacePerRound
from veilmap.federation.participation import Participation
from veilmap.federation.rounds import InProcess, Recording
from veilmap.federation.run import Run
from veilmap.federation.steps import FlatPieces, NoiseAwareStep, OpenGround, PlainDescent
from veilmap.federation.training import train
from veilmap.federation.transcript import SeenRound, SeenSum, Transcript

__all__ = [
    "Broadcast",
    "FlatPieces",
    "HistoryRow",
    "InProcess",
    "Model",
    "NoiseAwareStep",
    "OnePlacePerRound",
    "OpenGround",
    "Participation",
    "PlainDescent",
    "Recording",
    "Run",
    "SeenRound",
    "SeenSum",
    "Transcript",
    "Update",
    "train",
]
