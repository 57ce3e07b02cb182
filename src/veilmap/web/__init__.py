"""The page: runs, live training, and what a server could learn, in a browser."""
