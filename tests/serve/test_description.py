"""Requests made from the OpenAPI description, right ones and wrong ones: no answer is a fault of the server, and every
answer is as the description says."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.serve.running import running, soaked
from tests.serve.test_text import new_session

schemathesis = pytest.importorskip("schemathesis")
openapi_checks = pytest.importorskip("schemathesis.specs.openapi.checks")
CHECKS = [
    schemathesis.checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
]


@pytest.mark.parametrize("examples", [2, pytest.param(soaked(500, least=9), marks=pytest.mark.long)])
def test_the_description_holds(examples: int, folders: dict[str, Path], tmp_path: Path) -> None:
    """Sends `examples` valid requests to each route, and as many invalid ones."""
    limits = ("--set", "max_tokens=20", "--set", "max_body=20000", "--set", "max_sessions=100000")
    with running(list(folders.values()), tmp_path, *limits) as server, server.client() as client:
        description = client.get("/openapi.json").json()
        _name_sessions(description, new_session(client, text="The room was clean. "))
        asked = 0
        for result in schemathesis.openapi.from_dict(description).get_all_operations():
            operation = result.ok()
            for mode in schemathesis.GenerationMode:
                asked += _ask(operation, mode, server.url, examples=examples)
        assert asked > examples * len(description["paths"])
        assert client.get("/health").status_code == 200
        assert client.get("/load").json()["requests"] == 0
        assert "Traceback" not in server.log.read_text()


def _name_sessions(description: dict[str, Any], id: str) -> None:
    """Or every request would be for a session that there is not."""
    for path, methods in description["paths"].items():
        for route in methods.values():
            for parameter in route.get("parameters", []):
                if parameter["name"] == "id" and path != "/v1/sessions/{id}":
                    parameter["schema"] = {"type": "string", "enum": [id, "sess-none"]}


def _ask(operation: Any, mode: Any, url: str, *, examples: int) -> int:
    """Sends requests to one route; says how many."""
    asked = 0

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        nonlocal asked
        asked += 1
        case.call_and_validate(base_url=url, checks=CHECKS)

    try:
        ask()
    except Exception as error:
        if type(error).__name__ not in ("Unsatisfiable", "SkipTest", "Skipped"):  # a route without anything to be wrong
            raise
    return asked
