"""Proofs that a shared vector is no longer than a bound: PINE, over the 32-bit field of shares."""
