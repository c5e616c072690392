"""The names that leave, as a page."""

from __future__ import annotations

from pathlib import Path

from vllm_logpipe import semconv
from vllm_logpipe.report.telemetry import telemetry_page

PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"


def test_the_committed_page_is_current() -> None:
    """Whoever changes a name writes the page anew."""
    made = "".join(f"{line}\n" for line in telemetry_page())
    assert PAGE.read_text("utf-8") == made, "run: vllm-logpipe telemetry > docs/telemetry.md"


def test_every_name_has_a_row() -> None:
    """No span, incident, metric or attribute is left out."""
    page = "\n".join(telemetry_page())
    rows = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    names = {span.name for span in semconv.SPANS}
    names |= {event.name for event in semconv.SIGNAL_EVENTS}
    names |= {metric.name for metric in semconv.METRICS}
    names |= {attribute.name for attribute in semconv.ATTRIBUTES}
    assert names == rows
