"""Applications on the library and the server: real data in, a database, a page, measured quality.

`desk` is customer service from a company's own dialogues. What applications share is here: `database` (SQLite or
PostgreSQL, schema versions), `keys` (roles), `web` (guard, pages, the application around routes) and `webhooks`
(signed, retried).
"""
