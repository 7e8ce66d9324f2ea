"""Connections to a daemon, and calls that the generated modules do not have.

    from ashlar_client.api.verbs import status
    from ashlar_client.connect import answered, over_network
    from ashlar_client.models import StatusParams

    client = over_network("https://server:7320", "token", ca="ca.pem")
    print(answered(status.sync_detailed(client=client, body=StatusParams())).health)
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import httpx

from .api.routes import get_state
from .api.verbs import apply as apply_verb
from .client import AuthenticatedClient, Client
from .errors import UnexpectedStatus
from .models import ApplyAnswer, ApplyParams, Error, ErrorAnswer, Event
from .types import UNSET, Response

SOCKET = "/run/ashlar/ashlar.sock"
"""Control socket of a daemon that root runs."""

TIMEOUT_S = 30.0
"""Longest wait for an answer, in seconds."""

POLL_S = 0.5
"""Interval of polls, and pause before a lost stream is opened again, in seconds."""

AnyClient = AuthenticatedClient | Client
Answer = TypeVar("Answer")


class RefusedError(Exception):
    """A refusal of the daemon. `error` has its kind, object, reason and next command."""

    def __init__(self, error: Error) -> None:
        place = f"{error.at}: " if error.at else ""
        super().__init__(f"{error.op}: {place}{error.source}")
        self.error = error


def over_socket(path: str = SOCKET, timeout_s: float = TIMEOUT_S) -> Client:
    """A client over the control socket. The daemon checks the user of this process."""
    url, timeout = "http://localhost", httpx.Timeout(timeout_s)
    client = Client(base_url=url, timeout=timeout)
    transport = httpx.HTTPTransport(uds=path)
    client.set_httpx_client(httpx.Client(base_url=url, timeout=timeout, transport=transport))
    other = httpx.AsyncHTTPTransport(uds=path)
    client.set_async_httpx_client(
        httpx.AsyncClient(base_url=url, timeout=timeout, transport=other)
    )
    return client


def over_network(
    url: str, token_file: str, ca: str | None = None, timeout_s: float = TIMEOUT_S
) -> AuthenticatedClient:
    """A client over TCP. `ca`: file of the CA certificate; None: the certificates of the system."""
    return AuthenticatedClient(
        base_url=url.rstrip("/"),
        token=Path(token_file).read_text(encoding="ascii").strip(),
        timeout=httpx.Timeout(timeout_s),
        verify_ssl=ssl.create_default_context(cafile=ca),
    )


def answered(response: Response[Answer | ErrorAnswer]) -> Answer:
    """The answer in a response. Raises RefusedError for a refusal.

    A response that is neither (of a proxy, for example) raises UnexpectedStatus.
    """
    parsed = response.parsed
    if isinstance(parsed, ErrorAnswer):
        raise RefusedError(parsed.error)
    if parsed is None:
        raise UnexpectedStatus(response.status_code, response.content)
    return parsed


def apply(
    client: AnyClient,
    document: str,
    *,
    file: str = "ashlar.toml",
    if_generation: int | None = None,
    yes_destroy: Iterable[str] = (),
    wait_s: float = 600.0,
) -> ApplyAnswer:
    """Applies a configuration and returns when its last step is done.

    `file`: path of the document; relative paths in it begin at its folder. `if_generation`: refuse
    unless the configuration has this generation, which a plan reports. Then a call whose answer was
    lost can be repeated: it is refused with the kind `stale` if the first one succeeded.
    """
    body = ApplyParams(
        document=document,
        file=file,
        if_generation=UNSET if if_generation is None else if_generation,
        yes_destroy=list(yes_destroy),
    )
    # The limit of this call alone: `with_timeout` changes the client of other calls too.
    request = apply_verb._get_kwargs(body=body)
    response = client.get_httpx_client().request(**request, timeout=wait_s)
    return answered(apply_verb._build_response(client=client, response=response))


def wait_for_luns(client: AnyClient, wait_s: float = 600.0) -> None:
    """Waits until every LUN has its disk: for an apply whose answer has `waiting` above zero."""
    deadline = time.monotonic() + wait_s
    while True:
        state = answered(get_state.sync_detailed(client=client))
        missing = [
            f"{lun.provider} (LUN {lun.lun} of {target.name})"
            for target in state.targets or []
            for group in target.groups or []
            for lun in group.awaited or []
        ]
        if not missing:
            return
        if time.monotonic() >= deadline:
            raise TimeoutError(f"missing after {wait_s} s: {', '.join(missing)}")
        time.sleep(POLL_S)


def events(client: AnyClient, after: int = 0) -> Iterator[Event]:
    """Events after the number `after`, then further ones as they occur.

    A lost stream is opened again after the last event that was received.
    """
    while True:
        headers = {"Last-Event-ID": str(after)}
        http = client.get_httpx_client()
        try:
            with http.stream("GET", "/v1/events", headers=headers, timeout=None) as stream:
                stream.raise_for_status()
                for line in stream.iter_lines():
                    if line.startswith("data: "):
                        fields = json.loads(line.removeprefix("data: "))
                        after = fields["id"]
                        yield Event.from_dict(fields)
        except httpx.TransportError:
            pass
        time.sleep(POLL_S)
