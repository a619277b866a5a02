"""Comparisons that answer a question: variants of one model, equal budgets, several seeds, intervals, a report.

In: a study, which is a small TOML file (`schema`, `load`). Out: a report, and the runs behind it.

    data        corpora and tables of the study, prepared once and known by their digests
    plan        each variant as the config of a pretraining run that fits the budget, and the jobs that follow
    pool        jobs in processes of their own, one for each core; stopped by a signal, resumed by the same call
    worker      what such a process does: pretrain, measure, fine-tune
    results     what the jobs found, by variant and seed
    report      tables, curves, paired differences, the paper's figures beside ours, costs
"""
