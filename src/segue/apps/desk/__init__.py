"""Customer service from a company's own questions and answers.

Learning, without HTTP: `knowledge` (what was read), `terms` and `index` (full text), `linear` (n-grams), `encoder`
(vectors), `parts` (all of them), `ranker` (what each counts), `confidence` (when not to answer), `learn`, `model`,
`report`. The service: `store` (conversations), `decide` (when a person takes over), `service`, `routes`, `page/`.
Keeping it good: `improve`. The functions for Python are in `interface`.
"""
