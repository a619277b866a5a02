"""The FastAPI application: routes, guard and error handlers. The caller starts and stops the `Serving` behind it."""

from fastapi import FastAPI

import segue
from segue.serve import completions, explain_routes, service_routes, session_routes, task_routes, text_routes
from segue.serve.answers import add_error_answers
from segue.serve.guard import Guard
from segue.serve.page_routes import page_router
from segue.serve.serving import Serving


def make_app(serving: Serving) -> FastAPI:
    """Return the application of a server."""
    app = FastAPI(
        title="segue",
        version=segue.__version__,
        description="Transformer-XL and XLNet over HTTP: stateful sessions, isolated from each other.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.serving = serving
    app.state.limits = serving.settings
    for part in (completions, session_routes, text_routes, task_routes, explain_routes, service_routes):
        app.include_router(part.router)
    app.include_router(session_routes.plain)
    app.include_router(page_router("segue.serve"))
    add_error_answers(app)
    for path in app.openapi()["paths"].values():
        for route in path.values():
            route["responses"].pop("422", None)  # invalid requests are answered with 400
    app.add_middleware(Guard, serving=serving)
    return app
