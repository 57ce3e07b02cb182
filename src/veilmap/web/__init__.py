"""The page: runs, live training, and what a server could learn, in a browser.

answers    what the API answers with
library    which runs there are
opened     one run's files as data, read once
views      what the page shows of a run, computed
preparing  what attacks need for a round, made beside the answers
commands   runs to be started, as command lines
jobs       those commands as processes, one after the other
desk       what the page can have done
events     a run's progress as it happens
guard      who may ask, and what every answer carries
routes     requests in, answers out
app        the application
serving    the server
page/      what the browser gets
"""
