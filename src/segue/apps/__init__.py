"""Applications built on the library and the server, each with a database, web pages and measured quality.

`desk` is customer service from a company's own dialogues; `monitor` tracks sentiment about companies and topics;
`recommend` recommends items. Shared parts: `folder` (models, of which one is in use, and a database), `database`
(SQLite or PostgreSQL, schema versions), `keys` (roles), `web` (guard, pages, the application around routes), `running`
(a port, the model in use), `outbox` and `webhooks` (messages that are sent until they are accepted), `encoder` (text
embeddings), `regression` (linear models), `cells` (texts and times in tables) and `page/` (the frame of the web pages).
"""
