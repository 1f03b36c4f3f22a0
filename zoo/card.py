"""Renders the card of a published model from its method's card and its recorded test run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCardData

from zoo.catalog import card_prose, get_method
from zoo.errors import ZooError


def render_card(
    cls: str,
    *,
    license: str | None = None,
    repo_id: str | None = None,
    metrics: Mapping[str, Any] | None = None,
    figures: Sequence[str] = (),
) -> str:
    """The card, with its metadata as front matter.

    Args:
        cls: Class or name of a method; one outside the catalogue gets a card without prose.
        license: SPDX identifier of the weights.
        repo_id: Where the weights will be found.
        metrics: The content of ``metrics.json``: they go into ``model-index``.
        figures: Pictures to show, as paths relative to the card.
    """
    try:
        method = get_method(cls)
    except ZooError:
        method = None
    data = ModelCardData(
        license=license or "unknown",
        library_name="lightning-zoo",
        pipeline_tag=method.pipeline_tag if method else None,
        tags=["lightning-zoo", *(method.tags if method else [])],
        datasets=list(method.card.get("datasets") or []) or None if method else None,
        model_name=repo_id.rpartition("/")[2] if repo_id else cls,
        eval_results=_eval_results(method.task if method else "other", metrics or {}),
    )
    template = files("zoo.model_cards").joinpath("_template.md").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=False, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string(template).render(
        card_data=data.to_yaml(),
        cls=cls,
        method=method,
        prose=card_prose(method.name) if method else "",
        repo_id=repo_id or "path/to/this/folder",
        metrics=metrics,
        figures=list(figures),
    )


def _eval_results(task: str, record: Mapping[str, Any]) -> list[EvalResult] | None:
    data = record.get("data") or {}
    dataset = str(data.get("dataset") or data.get("class") or "unknown")
    return [
        EvalResult(
            task_type=task.replace(" ", "-").lower(),
            task_name=task,
            dataset_type=dataset,
            dataset_name=dataset,
            dataset_split=record.get("split"),
            dataset_args={k: v for k, v in data.items() if k not in ("dataset", "class")} or None,
            metric_type=name,
            metric_name=name.removeprefix("test_"),
            metric_value=value,
            metric_args={
                key: json.loads(json.dumps(record[key]))
                for key in ("seed", "hardware", "commit", "date")
                if record.get(key) is not None
            },
        )
        for name, value in (record.get("metrics") or {}).items()
    ] or None
