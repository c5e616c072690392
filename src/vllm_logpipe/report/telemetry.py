"""Every name that leaves, as a Markdown page: spans, incidents, metrics, attributes."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_logpipe import semconv

_LEAD = """# What leaves

Every name of spans, incidents, metrics and attributes, with type, unit and meaning. Names follow
the OpenTelemetry semantic conventions where they have one, else our own roots `vllm.*` and
`nccl.*`; units are UCUM, ratios run from 0 to 1. Made by `vllm-logpipe telemetry`;
[catalogue.md](catalogue.md) lists the events of records.
"""
_METRICS = """## Metrics

Counters and histograms are cumulative since the first record of the server; points bear the time
of the lines.
"""


def telemetry_page() -> Iterator[str]:
    """The lines of the page."""
    yield _LEAD
    yield "## Spans\n"
    yield "| name | kind | meaning |\n|---|---|---|"
    for span in semconv.SPANS:
        yield f"| `{span.name}` | {span.kind} | {span.brief} |"
    yield ""
    yield "## Incidents\n"
    yield "| event | meaning |\n|---|---|"
    for event in semconv.SIGNAL_EVENTS:
        yield f"| `{event.name}` | {event.brief} |"
    yield ""
    yield _METRICS
    yield "| name | type | unit | attributes | meaning |\n|---|---|---|---|---|"
    for metric in semconv.METRICS:
        names = ", ".join(f"`{name}`" for name in metric.attributes)
        yield f"| `{metric.name}` | {metric.type} | {metric.unit} | {names} | {metric.brief} |"
    yield ""
    yield "| histogram | upper bounds of the buckets |\n|---|---|"
    for metric in semconv.METRICS:
        if metric.bounds:
            yield f"| `{metric.name}` | {', '.join(f'{bound:g}' for bound in metric.bounds)} |"
    yield ""
    yield "## Attributes\n"
    yield "| name | type | unit | meaning |\n|---|---|---|---|"
    for attribute in semconv.ATTRIBUTES:
        brief = attribute.brief.replace("|", "\\|")
        yield f"| `{attribute.name}` | {attribute.type} | {attribute.unit} | {brief} |"
    yield ""
    yield "## Values\n"
    for name, values in (
        ("vllm.phase", semconv.PHASES),
        ("vllm.error.role", semconv.ERROR_ROLES),
        ("error.type", sorted(semconv.ERROR_CLASSES)),
        ("vllm.log.format", semconv.LOG_FORMATS),
    ):
        yield f"- `{name}`: {', '.join(f'`{value}`' for value in values)}"
