"""Explanations: attention scores of a model, and the dependence of its predictions on words, terms, heads and memory.

In: a model, and a batch or a text. Out: values to print, to compute with, or to put on a page.

    scores      the score of a head, split into its terms, for any layer, head and query (`segue.attention`)
    text        a text as the segments that a language model reads, each with its memory, and the loss on it
    terms       the weight of each term: shares of variance, means by distance, probability on memory
    ablate      the change in loss without a term, a head, a layer's attention or the memory
    decision    the prediction of a fine-tuned model, as a number
    words       the words behind a prediction of a fine-tuned model: integrated gradients, leave-one-out
    faithful    faithfulness of such a ranking of words: the prediction without its first words, and with them alone
    orders      a factorisation order step by step, for XLNet
    report      all of it for one text and model
    page        one explanation, or two side by side, as one HTML file

Attention is not computed here: `segue.model.kernels.definition` computes the terms, from the inputs of the model's
kernel.
"""
