"""Applications on the library and the server: real data in, a database, a page, measured quality.

`desk` is customer service from a company's own dialogues; `monitor` watches what is said of companies and topics. What
applications share is here: `database` (SQLite or PostgreSQL, schema versions), `keys` (roles), `web` (guard, pages, the
application around routes), `webhooks` (signed, retried), `regression` (linear models) and `page/` (the frame of their
pages).
"""
