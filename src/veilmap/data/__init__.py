"""Measurements: in memory, as links, in folders of many users, and as table files."""
