"""Builds on other machines: a build as data, the machines that can do it, and Dask that brings the two together.

`job` is the data, `store` where it and its results lie, `machines` who can do it, `running` does it and `results` takes
what came back; all of that needs no cluster. `cluster` and `worker` are the two ends of one on Dask, whose library
nothing else imports.
"""
