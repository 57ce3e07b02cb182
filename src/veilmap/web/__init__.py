"""The page: runs, live training, and what a server could learn, in a browser.

schema     what the API takes and answers with
library    which runs there are
views      what the page shows of a run, computed
downsampling  how much of a large map is shown
commands   runs to be started, as command lines
jobs       those commands as processes, and attacks that are prepared beside the answers
service    what the page can have done
events     a run's progress as it happens
auth       who may ask, and what every answer carries
routes     requests in, answers out
app        the application
serving    the server
static/    what the browser gets
"""
