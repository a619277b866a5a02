"""Applications on the library and the server: real data in, a database, a page, measured quality.

`desk` is customer service from a company's own dialogues; `monitor` watches what is said of companies and topics;
`recommend` says what comes next. What they share is here: `folder` (models, of which one is in use, and a database),
`database` (SQLite or PostgreSQL, schema versions), `keys` (roles), `web` (guard, pages, the application around routes),
`running` (a port, the model in use), `outbox` and `webhooks` (what is told until it is taken), `encoder` (vectors of
texts), `regression` (linear models), `cells` (texts and times in tables) and `page/` (the frame of their pages).
"""
