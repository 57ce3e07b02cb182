"""Runs on disk for those who look at them: opened, with their data and their command."""
