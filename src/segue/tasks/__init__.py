"""Jobs that a pretrained model learns from examples: a row of a table becomes documents, documents become an answer.

    row --example--> Example --items--> Item (documents + gold) --loss--> a number to minimise
                                                                --answers--> parts --prediction--> columns of a table

A task is one class that keeps the protocol of `task`, in a file of its own, and a line in `table`. It says which
columns it needs, which head stands on the trunk, how a row becomes documents, what is minimised, what is answered and
how well. Reading long documents, batches by length, optimisation, saving, prediction in streams and reports are the
same for all of them and know a task by this protocol alone; only the report has a part for classes.
"""
