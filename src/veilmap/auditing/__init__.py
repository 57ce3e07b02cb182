"""What attackers find, scored by the truth: the only package that knows it."""
