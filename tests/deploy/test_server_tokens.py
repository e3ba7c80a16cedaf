"""A token: without it nothing is told, and with it all is answered."""

import pytest
from server_running import Shades, client, serving, shade

PNG = {"Content-Type": "image/png"}


@pytest.fixture(scope="module")
def guarded():
    with serving(Shades().predictor, token="secret") as found:
        yield found


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer wrong", "Basic secret", "secret", "Bearer secret2", "Bearer \xfc"])
def test_without_the_token_nothing_is_told_of_the_model(guarded, given):
    headers = {} if given is None else {"Authorization": given.encode("latin-1")}
    with client(guarded.url, headers=headers) as stranger:
        for path in ("/model", "/metrics", "/nothing", "/predict"):
            answer = stranger.get(path)
            assert answer.status_code == 401 and answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["www-authenticate"] == "Bearer"
        assert stranger.post("/predict", content=shade(1)).status_code == 401
        for path in ("/health", "/ready", "/", "/page.js", "/page.css", "/openapi.json"):
            assert stranger.get(path).status_code == 200


def test_with_the_token_the_server_may_have_any_name(guarded):
    headers = {**PNG, "Host": "my.example", "Origin": "https://other.example"}
    assert guarded.post(shade(3), headers=headers).status_code == 200
    assert guarded.client.get("/openapi.json").json()["security"] == [{"token": []}]
