"""Renders the card of a published model from its method's card and its recorded test run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, cast

import jinja2
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from zoo.catalog import card_prose, get_method
from zoo.errors import ZooError, did_you_mean

LIBRARY = "lightning-zoo"

# What the hub takes as "license"; it refuses a card with another word.
LICENSES = frozenset(
    """
    afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m
    bigscience-bloom-rail-1.0 bigscience-openrail-m bsd bsd-2-clause bsd-3-clause
    bsd-3-clause-clear bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0
    cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0
    cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 cdla-sharing-1.0 creativeml-openrail-m deepfloyd-if-license ecl-2.0
    epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 fair-noncommercial-research-license gemma gfdl
    gpl gpl-2.0 gpl-3.0 h-research intel-research isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2
    llama3 llama3.1 llama3.2 llama3.3 lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1
    openmdw-1.0 openrail openrail++ osl-3.0 other pddl postgresql unlicense wtfpl zlib
    """.split()  # noqa: SIM905 (eighty quotes would hide the words)
)

# What the prose of a method's card must tell, for nobody can measure it.
SECTIONS = ("Use", "Input and output", "Data", "Limits", "Measured", "Citation")


def check_license(license: str | None) -> str:
    """The licence as the hub writes it.

    Raises:
        ZooError: If there is none, or the hub knows no such one.
    """
    if not license:
        raise ZooError("No licence, no push: say under which one others may use these weights.")
    known = license.strip().lower()
    if known not in LICENSES:
        hint = did_you_mean(known, LICENSES)
        raise ZooError(f"The hub knows no licence '{license}'.{hint} 'other' needs its own text.")
    return known


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
        library_name=LIBRARY,
        pipeline_tag=method.pipeline_tag if method else None,
        tags=[LIBRARY, *(method.tags if method else [])],
        datasets=list(method.card.get("datasets") or []) or None if method else None,
        model_name=repo_id.rpartition("/")[2] if repo_id else cls,
        eval_results=_eval_results(method.task if method else "other", metrics or {}),
    )
    template = files("zoo.model_cards").joinpath("_template.md").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=False, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    text = environment.from_string(template).render(
        card_data=data.to_yaml(),
        cls=method.cls if method else cls,
        method=method,
        prose=card_prose(method.name).strip() if method else "",
        repo_id=repo_id or "path/to/this/folder",
        metrics=metrics,
        data=_dataset(metrics or {}),
        figures=list(figures),
    )
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def read_card(text: str) -> ModelCardData:
    """The metadata of a card, as the hub would read them.

    Raises:
        ZooError: If the hub would refuse them, or the library's name or the licence is missing.
    """
    try:
        data = cast("ModelCardData", ModelCard(text).data)
        shown: dict[str, Any] = cast("Any", data).to_dict()
    except Exception as error:  # of YAML, or of whatever the client makes of a strange mapping
        reason = " ".join(str(error).split())
        raise ZooError(f"The card's front matter is invalid: {reason}") from error
    if shown.get("library_name") != LIBRARY:
        raise ZooError(f"The card does not say 'library_name: {LIBRARY}'.")
    license = shown.get("license")
    if not isinstance(license, str) or license not in LICENSES:
        raise ZooError(f"The card has no licence that the hub knows, but {license!r}.")
    for key in ("tags", "datasets"):
        value = shown.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ZooError(f"The card's '{key}' must be a list of strings, not {value!r}.")
    return data


def missing_sections(text: str) -> list[str]:
    """The sections that a card should have (``SECTIONS``) and this one has not."""
    found = {line.lstrip("# ").strip().lower() for line in text.splitlines() if line[:2] == "##"}
    return [section for section in SECTIONS if section.lower() not in found]


def card_metrics(data: ModelCardData) -> dict[str, float]:
    """The values of a card's ``model-index`` by the name of the metric, as the run logged it."""
    return {result.metric_type: result.metric_value for result in data.eval_results or []}


def _dataset(record: Mapping[str, Any]) -> str:
    data = record.get("data") or {}
    return str(data.get("dataset") or data.get("class") or "unknown data")


def _eval_results(task: str, record: Mapping[str, Any]) -> list[EvalResult] | None:
    data = record.get("data") or {}
    dataset = _dataset(record)
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
