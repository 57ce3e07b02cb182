"""Surveys: a radio map from one sum over everybody's contributions, with (ε, δ)."""
