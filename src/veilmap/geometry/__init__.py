"""The ground: grids, tracing, coordinate systems, tiles."""
