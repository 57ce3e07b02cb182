"""Ray tracing with Sionna RT, an extra: imported by scenes that are made of its meshes."""

from veilmap.raytracing.meshes import Meshes

__all__ = ["Meshes"]
