"""A federation on real hosts: its keys, its files, and its processes for a trial on one.

Flower does the work; this folder writes what Flower's commands need and starts them.
"""
