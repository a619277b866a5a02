"""Opinion monitoring: sentiment by topic and company, and alarms when it changes.

Classification of a text, without HTTP: `texts` (rows, times, languages), `terms` (n-grams with their positions),
`linear` (weights and exact contributions), `entities` (codes and names), `learn` and `model` (training, calibration,
inference), `folder` (models on disk). The stream: `sources` (the operator's configuration), `growing` and `feeds`
(files and HTTP), `repeats` (duplicates), `names` (names missing from the list), `watch` (baselines and detectors),
`levels` (thresholds for a budget of false alarms), `store` (SQL statements), `stream` (one transaction per batch). The
service: `service`, `routes`, `mail`, `page/`. Functions for Python are in `interface` and `views`.
"""
