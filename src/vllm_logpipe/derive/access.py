"""Access lines, read from the body of their records."""

from __future__ import annotations

from msgspec import Struct

from vllm_logpipe.model import LogRecord

_UVICORN = '{"vllm.log.format":"uvicorn"'
_JSON = '{"vllm.log.format":"json"'
_COUNT = '"vllm.log.repeat.count":'


class Access(Struct, frozen=True, gc=False):
    """One answered request, as uvicorn prints it when the response starts."""

    form: str
    client: str
    """Address and port."""
    path: str
    status: int


def read_access(record: LogRecord) -> Access | None:
    """What an access line says; None for other records, and for those that fold several."""
    if record.event_name != "vllm.http.access":
        return None
    attributes = record.attributes_json
    if attributes.startswith(_UVICORN):
        form = "uvicorn"
    elif attributes.startswith(_JSON):
        form = "json"
    else:
        return None
    client, _, request = record.body.partition(' - "')
    target, _, after = request.partition('" ')
    _, _, rest = target.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    status = after[:3]
    if not path or not status.isdecimal() or _COUNT in attributes or "error.type" in attributes:
        return None
    return Access(form, client, path, int(status))
