"""``vitrail serve``: what it refuses before it serves. The rest is in tests/deploy."""

import socket
import sys
from dataclasses import replace

import pytest
from server_running import tiny

from small_captioner import small_captioner
from tiny_segmenter import tiny_segmenter
from vitrail import api
from vitrail.deploy.server.http.limits import TEXTS


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny().save_pretrained(folder)
    return folder


def test_an_address_that_others_reach_needs_a_token(vitrail, trained, monkeypatch):
    monkeypatch.delenv("VITRAIL_TOKEN", raising=False)
    for host in ("0.0.0.0", "::"):
        answer = vitrail("serve", trained, "--port", 0, "--host", host)
        assert answer.code == 2
        assert "needs a token" in answer.err and "--token-file" in answer.err


@pytest.mark.parametrize("content", ["", "two words", "ü", "a\nb", None])
def test_a_token_that_no_header_can_hold_is_refused(vitrail, trained, tmp_path, content):
    if content is not None:
        (tmp_path / "token").write_text(content)
    assert vitrail("serve", trained, "--port", 0, "--token-file", tmp_path / "token").code == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
@pytest.mark.parametrize("token", ["0", "ababababababababab"])
def test_a_token_that_can_be_guessed_is_refused_wherever_a_proxy_may_stand_in_front(vitrail, trained, monkeypatch, token, host):
    monkeypatch.setattr("vitrail.deploy.server.running.run", lambda *arguments: 15)
    monkeypatch.setenv("VITRAIL_TOKEN", token)
    answer = vitrail("serve", trained, "--port", 0, "--host", host)
    assert answer.code == 2
    assert "easy to guess" in answer.err and "at least 16 characters" in answer.err and "secrets.token_urlsafe" in answer.err
    assert token == "0" or token not in answer.err


@pytest.mark.parametrize("url", ["localhost:3000", "*", "null", "https://a.example/page"])
def test_an_address_of_pages_that_is_none_is_refused_at_once(vitrail, trained, url):
    answer = vitrail("serve", trained, "--port", 0, "--allow-origin", "https://good.example", "--allow-origin", url)
    assert answer.code == 2 and f"{url!r} is not an origin" in answer.err and "where: --allow-origin" in answer.err


@pytest.mark.parametrize("source", ["file", "environment"])
def test_the_token_comes_from_a_file_or_from_the_environment(vitrail, trained, tmp_path, monkeypatch, source):
    seen = []
    monkeypatch.setattr(
        "vitrail.deploy.server.http.app.application", lambda service, access, on_answer: seen.append(access.token)
    )
    monkeypatch.setattr("vitrail.deploy.server.running.run", lambda *arguments: 15)
    (tmp_path / "token").write_text("from-file-secret\n")
    monkeypatch.setenv("VITRAIL_TOKEN", "from-environment-secret")
    words = ["--token-file", tmp_path / "token"] if source == "file" else []
    assert vitrail("serve", trained, "--port", 0, "--host", "0.0.0.0", *words).code == 0
    assert seen == [f"from-{source}-secret"]


def test_a_port_that_is_taken_fails_with_a_hint(vitrail, trained):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = vitrail("serve", trained, "--port", taken.getsockname()[1])
    assert answer.code == 1
    assert "cannot listen at 127.0.0.1" in answer.err and "--port" in answer.err


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
def test_an_address_that_is_not_of_this_machine_fails_with_a_hint(vitrail, trained, host):
    answer = vitrail("serve", trained, "--port", 0, "--host", host)
    assert answer.code == 1
    assert f"cannot listen at {host}" in answer.err


@pytest.mark.parametrize(
    "words",
    [
        "--port 65536",
        "--deadline nan",
        "--batch-size 0",
        "--queue 0",
        "--max-images 300",
        "--max-megapixels 101",
        "--max-mebibytes 0",
        "--precision fp8",
        "--token secret",
    ],
)
def test_a_wrong_flag_is_wrong_usage(vitrail, trained, words):
    assert vitrail("serve", trained, *words.split()).code == 2


@pytest.mark.parametrize(
    "words",
    [
        "--max-images 3",
        "--engine onnxruntime",
        "--precision bf16",
        "--max-texts 0",
        "--max-texts 300",
        "--max-characters 0",
    ],
)
def test_what_a_translator_has_not_is_wrong_usage(vitrail, translated_run, words):
    answer = vitrail("serve", translated_run.folder, "--port", 0, *words.split())
    assert answer.code == 2 and words.split()[0] in answer.err


def test_a_model_of_images_takes_no_texts(vitrail, trained):
    answer = vitrail("serve", trained, "--port", 0, "--max-texts", 3)
    assert answer.code == 2 and "a model of images takes no texts" in answer.err and "--max-texts" in answer.err


def test_a_translator_is_served_within_its_own_limits(vitrail, translated_run, monkeypatch):
    seen = []
    monkeypatch.setattr("vitrail.deploy.server.http.app.application", lambda service, access, on_answer: seen.append(service))
    monkeypatch.setattr("vitrail.deploy.server.running.run", lambda *arguments: 15)
    for words in ("", "--max-texts 3 --max-characters 9 --max-mebibytes 2 --queue 8"):
        assert vitrail("serve", translated_run.folder, "--port", 0, *words.split()).code == 0
    assert seen[0].limits == TEXTS and seen[0].task.writer.languages == ("en", "de")
    assert seen[1].limits == replace(TEXTS, items=3, characters=9, body=2 * 2**20, waiting=8)


def test_a_model_that_is_missing_is_refused(vitrail, tmp_path):
    assert vitrail("serve", tmp_path / "nothing", "--port", 0).code == 4


def test_without_the_extra_the_command_that_installs_it_is_told(vitrail, trained, monkeypatch):
    monkeypatch.delitem(sys.modules, "vitrail.deploy.server.http.app", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    answer = vitrail("serve", trained, "--port", 0)
    assert answer.code == 2
    assert "pip install 'vitrail[serve]'" in answer.err


def test_requests_are_told_of_on_stderr_by_choice_alone(vitrail, trained, monkeypatch):
    given = []
    monkeypatch.setattr(api, "serve", lambda *arguments, **options: given.append(options["on_answer"]) or 15)
    assert vitrail("serve", trained).code == 0 and given == [None]
    vitrail("serve", trained, "--access-log")

    def closed(line):
        raise BrokenPipeError

    monkeypatch.setattr("vitrail.cli.ship.serve.note", closed)
    given[1]("a line that nobody reads")  # and no error


def test_ctrl_c_ends_it_without_a_word_and_is_told_apart_by_the_exit_code(vitrail, trained, monkeypatch):
    for received, code in ((2, 130), (15, 0)):
        monkeypatch.setattr(api, "serve", lambda *arguments, received=received, **options: received)
        answer = vitrail("serve", trained)
        assert (answer.code, answer.out, answer.err) == (code, "", "")


def test_a_captioner_is_served_in_its_precision_and_behind_no_engine(vitrail, tmp_path, monkeypatch):
    seen = []
    small_captioner().save_pretrained(tmp_path / "captions")
    monkeypatch.setattr("vitrail.deploy.server.http.app.application", lambda service, access, on_answer: seen.append(service))
    monkeypatch.setattr("vitrail.deploy.server.running.run", lambda *arguments: 15)
    assert vitrail("serve", tmp_path / "captions", "--port", 0, "--precision", "bf16", "--max-images", 3).code == 0
    assert seen[0].task.writer.engine == "torch bf16" and seen[0].limits.items == 3 and seen[0].name == "captions"
    answer = vitrail("serve", tmp_path / "captions", "--port", 0, "--engine", "onnxruntime")
    assert answer.code == 2 and "--engine" in answer.err


def test_a_segmenter_is_served_in_windows_and_other_models_have_none(vitrail, trained, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("vitrail.deploy.server.running.run", lambda app, service, *others: seen.append(service.described()) or 15)
    tiny_segmenter().save_pretrained(tmp_path / "segmenter")
    assert vitrail("serve", tmp_path / "segmenter", "--port", 0, "--window", "33x40").code == 0
    assert seen[0]["window"] == (40, 40)
    for window in ("0", "wide", "64x0"):
        answer = vitrail("serve", tmp_path / "segmenter", "--port", 0, "--window", window)
        assert answer.code == 2 and "window" in answer.err
    answer = vitrail("serve", trained, "--port", 0, "--window", "64")
    assert answer.code == 2 and "a server of the task classification has no option --window" in answer.err
