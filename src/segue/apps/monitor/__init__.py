"""What is being said, by topic and company, and an alarm when it turns.

Reading a text, without HTTP: `texts` (rows, times, languages), `terms` (n-grams with their places), `linear` (weights
and exact contributions), `entities` (codes and names), `learn` and `model` (all of it, calibrated), `folder`. The
stream: `sources` (the operator's list), `growing` and `feeds` (what they give), `repeats` (duplicates), `names` (new
ones), `watch` (what is usual, and when it turns), `levels` (thresholds for a budget of false alarms), `store` (all
statements), `stream` (one transaction for each batch). The service: `service`, `routes`, `mail`, `page/`. Functions
for Python are in `interface`.
"""
