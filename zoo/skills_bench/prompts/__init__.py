"""Prompts of the benchmark."""
