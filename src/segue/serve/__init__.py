"""HTTP server of models, with sessions that keep their memory and are isolated from each other. See
docs/design/serving.md.

In: models and requests. Out: generated text, token by token, scores, embeddings and predictions. `engine` computes in a
worker thread, `app` and the route modules handle HTTP on the event loop, `sessions` and `store` hold the state of
sessions.
"""
