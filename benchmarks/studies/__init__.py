"""Measurements of single methods that are no comparison of trained arms."""
