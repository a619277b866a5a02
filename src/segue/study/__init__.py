"""Studies: variants of one model, compared at equal budgets over several seeds, with confidence intervals and a report.

In: a study, which is a small TOML file (`schema`, `load`). Out: a report, and the runs behind it.

    data        corpora and tables of the study, prepared once and identified by their digests
    plan        each variant as the config of a pretraining run that fits the budget, and the jobs of the study
    pool        worker processes, one for each core; stopped by a signal, resumed by the same call
    worker      a worker process: pretraining, evaluation, fine-tuning
    results     results of the jobs, by variant and seed
    report      tables, curves, paired differences, the paper's results beside ours, costs
"""
