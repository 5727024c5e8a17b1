"""Serving: what the address answers, what it refuses, how the command starts and ends."""

from __future__ import annotations

import gzip
import io
import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.conftest import Cli, start_tuner
from tests.tuner.conftest import Study
from tuner.dashboard import serve
from tuner.dashboard.serve import is_loopback, read_only, zipped
from tuner.dashboard.storage import REFUSED

pytest.importorskip("optuna_dashboard", reason="pip install 'tensorrt-tuner[dashboard]'")
READY = "dashboard at "


@contextmanager
def dashboard(study: Study) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`dashboard` as a process of its own on a free port: its address, and the process."""
    with start_tuner("dashboard", "--storage", study.url, "--port", 0) as process:
        assert process.stderr is not None
        try:
            line = next((line for line in process.stderr if line.startswith(READY)), "")
            assert line, "it ended without serving"
            yield line.removeprefix(READY).split()[0], process
        finally:
            process.kill()


def _get(url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


def _refused(url: str, method: str) -> dict[str, Any]:
    request = urllib.request.Request(url, method=method, data=None if method == "DELETE" else b"{}")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    with caught.value as error:
        assert error.code == 403
        body: dict[str, Any] = json.load(error)
    return body


def test_the_study_is_there_the_best_trial_feasible_and_nothing_can_be_changed(finished: Study) -> None:
    with dashboard(finished) as (url, process):
        (listed,) = _get(f"{url}/api/studies")["study_summaries"]
        shown = _get(f"{url}/api/studies/{listed['study_id']}")
        assert listed["study_name"] == "demo [1] synthetic 1"
        (best,) = shown["best_trials"]
        assert {"key": "candidate", "value": "b=v1"} in best["user_attrs"]
        feasible = {trial["number"]: all(one <= 0 for one in trial["constraints"]) for trial in shown["trials"]}
        assert sorted(feasible.values()) == [False, False, False, True, True, True]
        assert feasible[best["number"]]
        assert shown["note"]["body"].startswith("## Not confirmed yet")
        assert shown["artifacts"]
        assert shown["plotly_graph_objects"]
        for artifact in shown["artifacts"]:
            assert _get(f"{url}/artifacts/{listed['study_id']}/{artifact['artifact_id']}")["study"] == "demo"
        assert _refused(f"{url}/api/studies/{listed['study_id']}", "DELETE") == {"reason": REFUSED}
        assert _refused(f"{url}/api/studies", "POST") == {"reason": REFUSED}
        assert _refused(f"{url}/api/studies/{listed['study_id']}/note", "PUT") == {"reason": REFUSED}
        assert len(_get(f"{url}/api/studies")["study_summaries"]) == 1
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert "dashboard ended" in process.stderr.read()
        assert process.wait() == 0


def test_sigterm_ends_it_too(finished: Study) -> None:
    with dashboard(finished) as (_, process):
        process.terminate()
        assert process.wait() == 0


def test_a_port_in_use(finished: Study, cli: Cli) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        ended = cli("dashboard", "--storage", finished.url, "--port", busy.getsockname()[1])
    assert ended.code == 2
    assert "cannot listen on 127.0.0.1" in ended.err
    assert "--port" in ended.err


def test_an_address_that_is_not_ours(finished: Study, cli: Cli) -> None:
    ended = cli("dashboard", "--storage", finished.url, "--host", "203.0.113.7", "--port", 0)
    assert (ended.code, "--host" in ended.err) == (2, True)


def test_a_database_without_studies(finished: Study, cli: Cli) -> None:
    assert cli("study", "delete", *finished.at, "--yes").code == 0
    ended = cli("dashboard", "--storage", finished.url)
    assert ended.code == 2
    assert "there is no study in sqlite:///" in ended.err
    assert "study create" in ended.err


def test_a_database_that_is_not_there(cli: Cli, home_url: str) -> None:
    ended = cli("dashboard", "--storage", home_url)
    assert (ended.code, "hint: " in ended.err) == (2, True)


def test_refresh_writes_and_serves_nothing(finished: Study, cli: Cli) -> None:
    ended = cli("dashboard", "--refresh", "--storage", finished.url)
    assert (ended.code, ended.out) == (0, "brought 1 page up to date\n")


def test_who_can_reach_others_is_warned(finished: Study, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(serve, "serve", interrupted)
    loud = cli("dashboard", "--storage", finished.url, "--host", "0.0.0.0", "--port", 0)
    quiet = cli("dashboard", "--storage", finished.url, "--port", 0)
    assert (loud.code, quiet.code) == (0, 0)
    assert "warning: 0.0.0.0 can be reached by others" in loud.err
    assert "warning" not in quiet.err


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.3.4", "::1", "localhost"])
def test_addresses_that_nobody_else_can_reach(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "gpu-box.example"])
def test_addresses_that_others_can_reach(host: str) -> None:
    assert not is_loopback(host)


Started = list[tuple[str, dict[str, str]]]


def _ask(
    app: Callable[..., Iterable[bytes]], method: str = "GET", encodings: str = ""
) -> tuple[str, dict[str, str], bytes]:
    started: Started = []
    environ = {"REQUEST_METHOD": method, "HTTP_ACCEPT_ENCODING": encodings, "wsgi.input": io.BytesIO()}
    body = b"".join(app(environ, lambda status, headers: started.append((status, dict(headers)))))
    ((status, headers),) = started
    return status, headers, body


def _app(body: bytes, kind: str = "application/json") -> Callable[..., Iterable[bytes]]:
    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]

    return app


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_what_changes_something_never_reaches_the_dashboard(method: str) -> None:
    reached: list[Any] = []
    status, _, body = _ask(read_only(lambda *answer: reached.append(answer) or []), method)
    assert (status, json.loads(body), reached) == ("403 Forbidden", {"reason": REFUSED}, [])
    assert _ask(read_only(_app(b"[]")), "GET")[0] == "200 OK"


def test_large_json_is_compressed_for_those_who_take_it() -> None:
    large = json.dumps(list(range(10_000))).encode()
    _, headers, body = _ask(zipped(_app(large)), encodings="gzip, br")
    assert (gzip.decompress(body), headers["Content-Encoding"], headers["Content-Length"]) == (
        large,
        "gzip",
        str(len(body)),
    )
    for same in (_ask(zipped(_app(large))), _ask(zipped(_app(large, "text/css")), encodings="gzip")):
        assert (same[2], "Content-Encoding" in same[1]) == (large, False)
    assert _ask(zipped(_app(b"[]")), encodings="gzip")[2] == b"[]"
