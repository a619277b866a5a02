"""Task metrics: gold and predicted values in, named numbers with a 95 % interval out. No torch.

    classification   accuracy, F1, MCC, calibration error, confusion; several labels per row
    regression       Pearson, Spearman, mean squared error
    entities         tags <-> spans, entity precision, recall and F1
    answers          exact match and F1 of extracted answers
    ranking          NDCG, MRR, ERR, MAP, precision at 1
    pairs            accuracy on minimal pairs, by phenomenon and paradigm
    translation      BLEU and chrF
    bootstrap        the intervals of all of them

Every value equals that of the standard tool for it, on the scale of that tool: answers, BLEU and chrF go from 0 to
100 like their scripts, everything else from 0 to 1 (correlations and MCC from -1). A value is never NaN: where a metric
is undefined it is 0 by a documented rule, or the input is refused with a DataError.
"""
