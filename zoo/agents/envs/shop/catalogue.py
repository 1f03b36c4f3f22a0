"""Products to search: generated ones, and WebShop's files."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from zoo.agents.envs.base import Task, draw_tasks
from zoo.agents.retrieval import BM25Index
from zoo.errors import ZooError, check_choice

PRODUCTS = 500
# Kind of product: its category, what it can be like, and its options.
COLOURS = ("black", "white", "red", "blue", "green", "grey")
SIZES = ("small", "medium", "large")
KINDS: dict[str, tuple[str, tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "shirt": ("clothing", ("cotton", "slim", "striped", "soft"), {"color": COLOURS, "size": SIZES}),
    "jacket": (
        "clothing",
        ("waterproof", "warm", "hooded", "light"),
        {"color": COLOURS, "size": SIZES},
    ),
    "socks": ("clothing", ("wool", "warm", "striped", "short"), {"color": COLOURS, "size": SIZES}),
    "boots": (
        "shoes",
        ("leather", "waterproof", "warm", "wide"),
        {"color": COLOURS[:3], "size": ("38", "40", "42")},
    ),
    "sandals": (
        "shoes",
        ("leather", "light", "wide", "cork"),
        {"color": COLOURS[:4], "size": ("38", "40", "42")},
    ),
    "lamp": ("home", ("dimmable", "wooden", "tall", "foldable"), {"color": COLOURS[:4]}),
    "chair": ("home", ("wooden", "foldable", "padded", "tall"), {"color": COLOURS}),
    "kettle": (
        "kitchen",
        ("steel", "cordless", "quiet", "insulated"),
        {"capacity": ("1l", "2l")},
    ),
    "pan": ("kitchen", ("steel", "coated", "insulated", "light"), {"capacity": ("20cm", "28cm")}),
    "headphones": ("electronics", ("wireless", "foldable", "quiet", "light"), {"color": COLOURS}),
    "speaker": ("electronics", ("wireless", "waterproof", "loud", "light"), {"color": COLOURS}),
    "backpack": (
        "travel",
        ("waterproof", "light", "padded", "hooded"),
        {"color": COLOURS, "capacity": ("20l", "30l")},
    ),
}
CATEGORIES = tuple(sorted({category for category, _, _ in KINDS.values()}))
BRANDS = ("alder", "birch", "cedar", "elm", "fir", "hazel", "linden", "maple", "rowan", "willow")
CEILINGS = tuple(range(10, 201, 10))  # dollars that a wish may name


@dataclass(frozen=True)
class Product:
    """Something to buy.

    Attributes:
        asin: Its number in the catalogue.
        title: Its name.
        kind: What it is, in the words that people search with.
        category: Of its kind.
        description: Free text.
        attributes: What it is like.
        options: What can be chosen: name to values.
        price: Dollars.
    """

    asin: str
    title: str
    kind: str
    category: str
    description: str
    attributes: frozenset[str]
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    price: float = 0.0


class Catalogue:
    """Products that can be searched by BM25 over title, description and attributes."""

    def __init__(self, products: Sequence[Product]) -> None:
        if not products:
            raise ZooError("A catalogue without products can't be searched.")
        self.products = list(products)
        self.by_asin = {product.asin: product for product in products}

    @cached_property
    def index(self) -> BM25Index:
        """Over all products."""
        return BM25Index(
            [
                f"{p.title} {p.description} {' '.join(sorted(p.attributes))} "
                f"{' '.join(value for values in p.options.values() for value in values)}"
                for p in self.products
            ]
        )

    def search(self, query: str, k: int = 50) -> list[Product]:
        """The best matches, best first; products without any word of the query are left out."""
        scores = self.index.scores(query)
        return [self.products[i] for i in self.index.top(query, k) if scores[i] > 0]


@cache
def generated_catalogue(n: int = PRODUCTS, seed: int = 0) -> Catalogue:
    """A catalogue of n products, the same for a seed."""
    rng = random.Random(f"catalogue {seed}")
    products = []
    for i in range(n):
        kind = rng.choice(sorted(KINDS))
        category, words, options = KINDS[kind]
        attributes = sorted(rng.sample(words, rng.randint(2, 3)))
        offered = {
            name: sorted(rng.sample(values, rng.randint(2, len(values))), key=values.index)
            for name, values in options.items()
        }
        shown = rng.choice(attributes)
        products.append(
            Product(
                asin=f"b{1000 + i}",
                title=f"{rng.choice(BRANDS)} {shown} {kind}",
                kind=kind,
                category=category,
                description=f"a {' and '.join(attributes)} {kind} for {category}",
                attributes=frozenset(attributes),
                options=offered,
                price=float(rng.randint(5, 150)),
            )
        )
    return Catalogue(products)


def shop_tasks(
    split: str, n: int, families: Sequence[str] = CATEGORIES, offset: int = 0
) -> list[Task]:
    """Wishes of a split that the generated catalogue fulfils, the families in turn.

    Args:
        split: ``train``, ``val``, ``test`` or ``probe``.
        n: How many, all families together.
        families: Of ``CATEGORIES``.
        offset: Seeds of the split to pass over.

    Raises:
        ZooError: If a family or a split is unknown, or there are not as many wishes.
    """
    for family in families:
        check_choice("family", family, CATEGORIES)
    catalogue = generated_catalogue()
    offered = {f: [p for p in catalogue.products if p.category == f] for f in families}

    def make(seed: int) -> Task:
        rng = random.Random(f"wish {seed}")
        family = families[seed % len(families)]
        product = rng.choice(offered[family])
        attributes = sorted(rng.sample(sorted(product.attributes), rng.randint(1, 2)))
        options = {name: rng.choice(list(values)) for name, values in product.options.items()}
        ceiling = next(c for c in CEILINGS if c > product.price)
        return _wish(f"shop-{seed}", family, split, seed, product, attributes, options, ceiling)

    return draw_tasks(make, split, n, offset)


def _wish(
    task_id: str,
    family: str,
    split: str,
    seed: int,
    product: Product,
    attributes: Sequence[str],
    options: Mapping[str, str],
    ceiling: float,
    instruction: str = "",
) -> Task:
    if not instruction:
        chosen = "".join(f", {name} {value}" for name, value in options.items())
        instruction = f"i want a {' '.join(attributes)} {product.kind}{chosen}"
    payload = {
        "instruction": f"{instruction}, price lower than {ceiling:g} dollars",
        "goal": {
            "title": product.title,
            "kind": product.kind,
            "category": product.category,
            "attributes": list(attributes),
            "options": dict(options),
            "ceiling": ceiling,
        },
    }
    return Task(task_id, family, split, seed, payload)


# -------------------------------------------------------------------------------------- WebShop
WEBSHOP = ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json")
WEBSHOP_SPLITS = {"test": slice(0, 500), "val": slice(500, 1500), "train": slice(1500, None)}


def read_webshop(root: str | os.PathLike[str]) -> tuple[Catalogue, dict[str, list[Task]]]:
    """WebShop's products and people's wishes, by split (https://arxiv.org/abs/2207.01206).

    A wish's highest price is drawn anew, as WebShop does. The code is under MIT; the product data
    is for research, and no part of this package.

    Args:
        root: Folder of ``items_shuffle.json``, ``items_ins_v2.json`` and ``items_human_ins.json``.

    Raises:
        ZooError: If one is missing or malformed.
    """
    root = Path(root)
    for name in WEBSHOP:
        if not (root / name).exists():
            raise ZooError(f"{root} lacks {name}: WebShop's data are {', '.join(WEBSHOP)}.")
    try:
        items, about, wishes = (json.loads((root / n).read_text("utf-8")) for n in WEBSHOP)
        products = {}
        for item in items:
            asin = item["asin"]
            if asin not in products and len(asin) <= 10:
                products[asin] = _webshop_product(item, about.get(asin, {}))
        tasks = []
        rng = random.Random(233)  # WebShop's seed
        for asin in wishes:
            for number, wish in enumerate(wishes[asin]):
                if asin not in products or not wish.get("instruction_attributes"):
                    continue
                ceilings = [c for c in CEILINGS if c > products[asin].price]
                ceiling = sorted(rng.sample(ceilings, 2))[1] if len(ceilings) > 1 else 1e6
                product = products[asin]
                options = _webshop_options(product, wish.get("instruction_options", []))
                tasks.append(
                    _wish(
                        f"webshop-{asin}-{number}",
                        product.category,
                        "",
                        number,
                        product,
                        wish["instruction_attributes"],
                        options,
                        ceiling,
                        wish["instruction"].strip(" .,"),
                    )
                )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ZooError(f"The files in {root} are not WebShop's: {error!r}.") from None
    rng.shuffle(tasks)
    found = {
        split: [Task(t.task_id, t.family, split, t.seed, t.payload) for t in tasks[part]]
        for split, part in WEBSHOP_SPLITS.items()
    }
    return Catalogue(list(products.values())), found


def _webshop_product(item: Mapping[str, Any], about: Mapping[str, Any]) -> Product:
    prices = [float(p) for p in re.findall(r"\d+\.?\d*", str(item.get("pricing") or "100"))]
    choices = item.get("customization_options") or {}
    return Product(
        asin=item["asin"],
        title=item["name"],
        kind=str(item.get("query", "")).lower().strip(),
        category=str(item.get("category", "")),
        description=str(item.get("full_description") or ""),
        attributes=frozenset(about.get("attributes") or []),
        options={
            name.lower(): [str(c["value"]).strip().lower().replace("/", " | ") for c in values]
            for name, values in choices.items()
            if values
        },
        price=prices[0] if prices else 100.0,
    )


def _webshop_options(product: Product, wanted: Sequence[str]) -> dict[str, str]:
    """A wish's option values with the names that the product gives them."""
    found: dict[str, str] = {}
    for value in wanted:
        text = str(value).strip().lower()
        name = next((n for n, values in product.options.items() if text in values), "")
        found[name or f"option {len(found) + 1}"] = text
    return found
