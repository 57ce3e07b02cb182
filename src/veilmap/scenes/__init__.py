"""Cities to measure in: synthetic, of buildings, ray-traced."""
