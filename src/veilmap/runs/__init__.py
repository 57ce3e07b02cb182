"""Runs on disk for those who look at them: where data came from, how to repeat them."""
