"""Serve: Optuna Dashboard on a database of studies, read only.

Flow: `python -m tuner dashboard` -> the address is taken -> pages.py brings what is shown up to date -> served HERE
until SIGINT. The dashboard knows no users and can delete studies; behind `read_only` it can only show them.
"""

from __future__ import annotations

import gzip
import ipaddress
import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from optuna.artifacts import FileSystemArtifactStore

from tuner.dashboard.page import require_installed
from tuner.dashboard.pages import ARTIFACTS
from tuner.dashboard.storage import REFUSED, ReadOnlyStorage
from tuner.errors import UsageError
from tuner.home import Home

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_HARMLESS = ("GET", "HEAD", "OPTIONS")
_WORTH_ZIPPING = 1 << 14  # bytes: the trials of a large study are megabytes that shrink to a thirtieth


class DashboardServer(ThreadingMixIn, WSGIServer):
    """One thread a request: a large study takes seconds to be sent, and others want to look meanwhile."""

    daemon_threads = True

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        name = str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}"


class _Ipv6Server(DashboardServer):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        return  # a line a request tells nobody anything; the address is said at the start


@contextmanager
def taken(host: str, port: int) -> Iterator[DashboardServer]:
    """The address, ours from now on; nothing is served yet. Raises: UsageError if it cannot be had."""
    server_class = _Ipv6Server if ":" in host else DashboardServer
    try:
        server = make_server(host, port, _nothing, server_class=server_class, handler_class=_Quiet)
    except (OSError, OverflowError) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot listen on {host}:{port}: {words}", hint="choose another address with --host and --port"
        ) from error
    assert isinstance(server, DashboardServer)
    try:
        yield server
    finally:
        server.server_close()


def serve(server: DashboardServer, home: Home, on_ready: Callable[[str], None]) -> None:
    """Show the studies of `home` until the process is interrupted; `on_ready` is told the address."""
    require_installed()
    storage = ReadOnlyStorage(home.url)
    try:
        store = FileSystemArtifactStore(home.artifacts.root / ARTIFACTS)
        app = import_module("optuna_dashboard").wsgi(storage, artifact_store=store)
        server.set_app(read_only(zipped(app)))
        threading.Thread(target=storage.warm_up, name="tuner-dashboard-reader", daemon=True).start()
        on_ready(server.url)
        server.serve_forever()
    finally:
        storage.close()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_only(app: App) -> App:
    """`app` without what changes anything: 403 and a sentence, in the form in which the dashboard shows reasons."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in _HARMLESS:
            return app(environ, start_response)
        body = json.dumps({"reason": REFUSED}).encode()
        start_response("403 Forbidden", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    return guarded


def zipped(app: App) -> App:
    """`app` with large JSON compressed for browsers that take it."""

    def answering(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if "gzip" not in environ.get("HTTP_ACCEPT_ENCODING", ""):
            return app(environ, start_response)
        held: list[Any] = []
        body = app(environ, lambda *answer: held.extend(answer))
        status, headers = held[0], dict(held[1])
        if not headers.get("Content-Type", "").startswith("application/json"):
            start_response(*held)
            return body
        content = b"".join(body)
        if len(content) >= _WORTH_ZIPPING:
            content = gzip.compress(content, compresslevel=1)
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        start_response(status, [*{**headers, "Content-Length": str(len(content))}.items()])
        return [content]

    return answering


def _nothing(_: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("503 Service Unavailable", [("Retry-After", "2")])
    return []
