"""Builds on other machines: a build as data, the machines that can do it, and a scheduler that brings the two together.

`job` is the data, `store` where it and its results lie, `machines` who can do it, `running` does it and `results` takes
what came back; all of that needs no cluster. `wire` is what travels in one, `scheduler` its middle, and `cluster` and
`worker` are its ends.
"""
