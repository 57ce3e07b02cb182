"""The page: runs, live training, and what a server could learn, in a browser.

answers    what the API answers with
library    which runs there are
opened     one run, ready to be asked
commands   runs as command lines, and back
jobs       those commands as processes, one after the other
events     a run's progress as it happens
guard      who may ask, and what every answer carries
app        the routes
serving    the server
page/      what the browser gets
"""
