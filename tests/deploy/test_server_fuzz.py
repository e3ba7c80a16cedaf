"""Requests that nobody would think of, made from the server's own description: none of them is an error of the server."""

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import checks
from server_running import Running, serving, serving_by, tiny

from vitrail.deploy.predictor import in_python
from vitrail.deploy.server.http.limits import TEXTS, Limits
from vitrail.study.maps.attention import look_of
from vitrail.tasks.translation.predictor import writer_of
from vitrail.tasks.translation.service import ServedTranslations

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


def fuzz(cases: int, *, chance: int = 0) -> int:
    """So many requests of a model of images, beside the few that there are without a body; gives how many were made."""
    model = tiny()
    look, _ = look_of(model)
    with serving(in_python(model), Limits(body=100_000), look=look) as server:
        return fuzzed(server, cases // 2, chance)  # there are two with a body


def fuzzed(server: Running, cases: int, chance: int = 0) -> int:
    """So many requests to each path that takes a body, a few to the others; gives how many were made."""
    made = 0
    described = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    for operation in [each.ok() for each in described.get_all_operations()]:
        share = cases if operation.method == "post" else 5

        @seed(chance)
        @settings(
            max_examples=share,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def ask(case):
            nonlocal made
            made += 1
            case.call_and_validate(checks=CHECKS)

        ask()
    return made


def test_no_request_is_an_error_of_the_server():
    assert fuzz(200) >= 200


def test_no_request_is_an_error_of_the_server_of_a_translator(translator):
    with serving_by(ServedTranslations(writer_of(translator), TEXTS), "words") as server:
        assert fuzzed(server, 60) >= 60
