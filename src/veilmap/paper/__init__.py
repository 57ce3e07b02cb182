"""The paper: its theory and its experiments."""
