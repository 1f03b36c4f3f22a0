"""Computes the package list, so that adding a method edits no list (the rest is pyproject.toml)."""

from setuptools import find_packages, setup

MAPPED = ("datamodules", "callbacks", "cli", "model_cards")  # see package-dir in pyproject.toml

packages = find_packages(include=["zoo", "zoo.*"])
for folder in MAPPED:
    packages.append(f"zoo.{folder}")
    packages += [f"zoo.{folder}.{name}" for name in find_packages(folder)]

setup(packages=packages)
