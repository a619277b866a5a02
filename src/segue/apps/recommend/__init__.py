"""What next, from what people did and what things say: events and items in, lists with reasons out.

    tables --rows--> database --histories--> network --learn--> models/0001 --sessions--> lists, reasons

`interface` has what `import segue` gives; `run` puts a recommender on a port.
"""
