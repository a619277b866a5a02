"""Recommendations from user events and item texts: events and items in, lists with reasons out.

    tables --rows--> database --histories--> network --learn--> models/0001 --sessions--> lists, reasons

`interface` has the public functions of `segue`; `run` serves a recommender over HTTP.
"""
