"""Masked sums on Flower: SecAgg+ with nodes that do not trust the server."""
