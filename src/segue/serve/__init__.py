"""A server of models over HTTP: sessions that remember, and that never mix. See docs/design/serving.md.

In: models and requests. Out: text as it is written, scores, vectors, answers. `engine` computes in a thread of its own,
`app` and the routes speak HTTP on the event loop, `sessions` and `store` keep what sessions have read.
"""
