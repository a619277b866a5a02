"""Explanations: what a model attends to, and what its predictions depend on.

In: a model, and a batch or a text. Out: values to print, to compute with, or to put on a page.

    scores      the score of a head, split into its terms, for any layer, head and query (`segue.attention`)
    text        a text as the segments that a language model reads, each with its memory, and the loss on it
    terms       what each term counts: shares of variance, means by distance, probability that goes to memory
    ablate      the change in loss without a term, a head, a layer's attention or the memory
    decision    what a fine-tuned model decided, as a number
    words       which words decided an answer of a fine-tuned model: integrated gradients, leave-one-out
    faithful    whether such a ranking of words is true: the answer without its first words, and with them alone
    orders      an order of factorisation step by step, for XLNet
    report      all of it for one text and model
    page        one explanation, or two side by side, as one HTML file

Attention is not computed here: `segue.model.kernels.definition` gives the terms, from what the model gave its kernel.
"""
