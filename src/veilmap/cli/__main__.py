"""`python -m veilmap.cli` is `veilmap`."""

from veilmap.cli import main

main()
