"""Helpers with two users or more: checks, files, ids, threads, optional imports."""
