"""Customer service from a company's own questions and answers.

Learning, without HTTP: `knowledge` (what was read), `terms` and `index` (full text), `linear` (n-grams), `matcher`
(vectors that are learned to match), `parts` (all of them), `ranker` (what each counts), `network`, `pairs` and
`second` (what is tried on top), `confidence` (when not to answer), `rounds` (what is held back), `learn`, `model`,
`report`. The service: `store` (conversations), `decide` (when a person takes over), `reply`, `writer` (a reply that
is generated, where that is allowed), `service`, `routes`, `page/`. Keeping it good: `improve`, `forget`. The
functions for Python are in `interface`.
"""
