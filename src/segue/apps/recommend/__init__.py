"""Recommendations from what users did and what items say: events and items in, lists with reasons out.

    tables --rows--> database --histories--> network --learn--> models/0001 --sessions--> lists, reasons

`interface` has what `import segue` gives; `run` puts a recommender on a port.
"""
