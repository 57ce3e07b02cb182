"""Mechanisms, their noise, and what they cost in privacy."""
