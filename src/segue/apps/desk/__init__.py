"""Customer service from a company's own questions and answers.

Training, without HTTP: `knowledge` (topics, answers and questions read from tables), `terms` and `index` (full-text
search), `linear` (logistic regression on n-grams), `matcher` (bi-encoder), `parts` (all scores of a topic), `ranker`
(weights of the parts), `network`, `pairs` and `second` (fine-tuned classifier or cross-encoder), `confidence`
(calibration and thresholds), `rounds` (held-out questions), `crosswise` (cross-fitting), `learn`, `build`, `model`,
`folder`, `report`. Service: `store` (conversations), `decide` (messages recognised by their words), `slots`, `phrases`,
`reply`, `writer` (generated replies, if allowed), `settings`, `service`, `routes`, `run`, `page/`. Maintenance:
`reviews`, `improve`, `forget`. The Python functions are in `interface`.
"""
