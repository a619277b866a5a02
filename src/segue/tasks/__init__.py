"""Tasks that a pretrained model is fine-tuned for: a row of a table becomes documents, documents become a prediction.

    row --example--> Example --items--> Item (documents + gold) --loss--> a number to minimise
                                                                --answers--> parts --prediction--> columns of a table

A task is a class that implements the protocol of `task`, in a file of its own, and a line in `table`. It defines the
columns that it needs, the head on the trunk, the conversion of a row to documents, the loss, the prediction and the
metrics. Reading long documents, batching by length, optimisation, saving, prediction of streams and reports are the
same for all tasks and rely on this protocol alone; only the report has a section for classes.
"""
