"""From bytes to logical records: lines, headers, clock and joining. Knows no event."""
