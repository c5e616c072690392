"""Benchmarks of the normaliser: throughput, memory and growth. They print ratios to floors."""
