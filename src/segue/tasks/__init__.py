"""Jobs that a pretrained model learns from examples: a row of a table becomes documents, documents become an answer.

    row --example--> Example --items--> Item (documents + gold) --loss--> a number to minimise
                                                                --answers--> parts --prediction--> columns of a table

A task is one file with one class that keeps the protocol of `task`, a line in `table`, and one test. It says which
columns it needs, which head stands on the trunk, how a row becomes documents, what is minimised, what is answered and
how well. Reading long documents, batches by length, optimisation, saving, prediction in streams and reports are the
same for all of them and know nothing of any task.
"""
