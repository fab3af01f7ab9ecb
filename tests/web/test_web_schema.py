"""Made-up requests by the OpenAPI description: no server error, and every answer is as described."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from web_clients import ask, running_server, upload, wait_for

schemathesis = pytest.importorskip("schemathesis")
import httpx2 as httpx  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory, clip: Path) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("described")
    with running_server(folder, folder) as url, httpx.Client(base_url=url, timeout=120) as client:
        video_id = upload(client, clip)["id"]
        query_id = ask(client, video_id)["id"]
        wait_for(client, query_id, "done")
        # Not by the library, whose own request waits no more than ten seconds on a busy machine.
        found = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
        found.config.update(base_url=url)

        @found.hook
        def map_path_parameters(context: Any, path_parameters: Any) -> Any:
            """Half of the made-up ids become real ones."""
            real = {"video_id": video_id, "query_id": query_id}
            removes = context.operation.method.lower() == "delete"
            if path_parameters and not removes and len(str(path_parameters)) % 2 == 0:
                return {name: real.get(name, value) for name, value in path_parameters.items()}
            return path_parameters

        yield found


CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]


def test_no_request_breaks_the_server(described: Any) -> None:
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) == 18
    seen = set()
    for operation in operations:

        @settings(
            max_examples=15,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            response = case.call_and_validate(checks=CHECKS, timeout=120)
            seen.add((case.operation.label, response.status_code))

        check()
    reached = {
        ("GET /videos/{video_id}", 200),
        ("GET /queries/{query_id}", 200),
        ("GET /queries/{query_id}", 404),
    }
    assert reached | {("POST /videos/{video_id}/queries", 422), ("POST /videos", 422)} <= seen
