"""The command line's commands, one file each; `cli` puts them together."""
