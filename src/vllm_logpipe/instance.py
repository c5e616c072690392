"""Server instances: one vLLM start of a stream, from a banner or the first record to the next."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

_MAX_PROCESSES = 4096


def identity(*parts: object) -> str:
    """A stable 16-digit hash of what identifies something."""
    text = "\0".join(map(str, parts))
    return blake2b(text.encode(errors="backslashreplace"), digest_size=8).hexdigest()


class Instance:
    """One start of a server, with its resource as JSON text."""

    __slots__ = ("_attributes", "has_banner", "resource_json")

    def __init__(self, key: str, attributes: dict[str, str]) -> None:
        self.has_banner = False
        self._attributes = {"service.name": "vllm", "service.instance.id": key, **attributes}
        self.resource_json = msgspec.json.encode(self._attributes).decode()

    def set_version(self, version: str) -> None:
        """Take up the version of vLLM, once it is printed."""
        if self._attributes.get("service.version") != version:
            self._attributes["service.version"] = version
            self.resource_json = msgspec.json.encode(self._attributes).decode()


class Instances:
    """The instances of one stream.

    A process belongs to the start that was current when it first printed, a line without a
    process to the latest start.
    """

    def __init__(self, source: str, attributes: dict[str, str]) -> None:
        self._source = source
        self._attributes = attributes
        self._by_process: dict[int, Instance] = {}
        self.current = Instance(identity(source, 0), attributes)

    def of(self, pid: int | None) -> Instance:
        """The instance that a process belongs to."""
        if pid is None:
            return self.current
        instance = self._by_process.get(pid)
        if instance is None:
            if len(self._by_process) >= _MAX_PROCESSES:
                self._by_process.clear()
            instance = self._by_process[pid] = self.current
        return instance

    def start(self, pid: int | None, offset: int) -> Instance:
        """A banner: the first one of a stream names the instance that has begun already."""
        if self.current.has_banner:
            ended = self._by_process.get(pid) if pid is not None else self.current
            self._by_process = {
                other: instance
                for other, instance in self._by_process.items()
                if instance is not ended
            }
            self.current = Instance(identity(self._source, offset), self._attributes)
        self.current.has_banner = True
        if pid is not None:
            self._by_process[pid] = self.current
        return self.current
