"""Ray tracing with Sionna RT, an extra: imported by scenes that are made of its meshes."""

from veilmap.scenes.sionna.meshes import Meshes

__all__ = ["Meshes"]
