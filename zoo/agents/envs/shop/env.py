"""A shop to search and buy in, with WebShop's pages, actions and reward.

Yao et al., "WebShop: Towards Scalable Real-World Web Interaction with Grounded Language Agents",
2022, https://arxiv.org/abs/2207.01206.
"""

from __future__ import annotations

import os
import re
from typing import Any

from zoo.agents.envs.base import Obs, State, Step, Task
from zoo.agents.envs.shop.catalogue import (
    Catalogue,
    Product,
    generated_catalogue,
    read_webshop,
)
from zoo.agents.retrieval import words
from zoo.errors import ZooError, check_choice

MAX_STEPS = 15
PAGE = 10  # products of a page of results
ACTION = re.compile(r"\s*(search|click)\s*\[(.*)\]\s*", re.DOTALL | re.IGNORECASE)
BACK, BUY, NEXT, PREVIOUS = "back to search", "buy now", "next >", "< prev"


def type_reward(product: Product, goal: dict[str, Any]) -> float:
    """How far a product is of the wanted kind: 0, 0.1, 0.5 or 1.

    WebShop's rule, with the share of the wanted title's words in place of its nouns: a product of
    the same search words or category, or more than 0.2 of the words, counts in full.
    """
    wanted = set(words(goal["title"]))
    share = len(wanted & set(words(product.title))) / max(1, len(wanted))
    if goal["kind"] == product.kind:
        return 1.0
    if share == 0:
        return 0.0
    if share < 0.1:
        return 0.1
    return 1.0 if goal["category"] == product.category or share > 0.2 else 0.5


def purchase_reward(product: Product, options: dict[str, str], goal: dict[str, Any]) -> float:
    """WebShop's reward: the share of attributes, options and price that fit, times the type's.

    Args:
        product: That was bought.
        options: That were chosen.
        goal: Of the task.

    Returns:
        From 0 to 1.
    """
    text = f"{product.title} {product.description}".lower()
    attributes = sum(a in product.attributes or a in text for a in goal["attributes"])
    chosen = set(options.values())
    fitting = sum(value in chosen for value in goal["options"].values())
    cheap = product.price <= goal["ceiling"]
    total = len(goal["attributes"]) + len(goal["options"]) + 1
    return type_reward(product, goal) * float(attributes + fitting + cheap) / total


class ShopEnv:
    """Wishes to fulfil by ``search[words]`` and ``click[button]``; buying ends the episode.

    Args:
        catalogue: To shop in; 500 generated products if not given.
        max_steps: After which an episode ends, unpaid.
    """

    def __init__(self, catalogue: Catalogue | None = None, max_steps: int = MAX_STEPS) -> None:
        self.catalogue = catalogue or generated_catalogue()
        self.max_steps = max_steps
        self.task: Task | None = None

    def reset(self, task: Task) -> Obs:
        """Begins on the search page."""
        if not {"instruction", "goal"} <= set(task.payload):
            raise ZooError(f"Task '{task.task_id}' is no wish for a shop.")
        self.task, self.steps, self.done = task, 0, False
        self.query, self.page, self.asin, self.bought = "", 0, "", ""
        self.options: dict[str, str] = {}
        self._found: list[Product] = []
        return self._observe()

    def step(self, action: str) -> Step:
        """Searches, or clicks what is on the page."""
        if self.task is None or self.done:
            raise ZooError("A shopping episode begins with reset, and ends when done is true.")
        self.steps += 1
        match = ACTION.fullmatch(action)
        verb, value = (match[1].lower(), match[2].strip().lower()) if match else ("", "")
        valid = False
        if verb == "search" and not self.query and words(value):
            self.query, self.page, valid = value, 0, True
            self._found = self.catalogue.search(value)
        elif verb == "click" and value in self._buttons():
            self._click(value)
            valid = True
        reward = 0.0
        if self.bought:
            product = self.catalogue.by_asin[self.bought]
            reward = purchase_reward(product, self.options, dict(self.task.payload["goal"]))
        self.done = bool(self.bought) or self.steps >= self.max_steps
        info = {"success": reward == 1.0, "valid": valid}
        return Step(self._observe(), reward, self.done, info)

    def _buttons(self) -> list[str]:
        """What can be clicked on the present page."""
        if self.bought or not self.query:
            return []
        if self.asin:
            product = self.catalogue.by_asin[self.asin]
            choices = [v for values in product.options.values() for v in values]
            return [BACK, PREVIOUS, BUY, *choices]
        shown = self._found[self.page * PAGE : (self.page + 1) * PAGE]
        buttons = [BACK, *(product.asin.lower() for product in shown)]
        buttons += [NEXT] if (self.page + 1) * PAGE < len(self._found) else []
        return buttons + ([PREVIOUS] if self.page else [])

    def _click(self, value: str) -> None:
        if value == BACK:
            self.query, self.asin, self.options, self._found = "", "", {}, []
        elif value == BUY:
            self.bought = self.asin
        elif value == NEXT:
            self.page += 1
        elif value == PREVIOUS and self.asin:
            self.asin, self.options = "", {}
        elif value == PREVIOUS:
            self.page -= 1
        elif self.asin:
            offered = self.catalogue.by_asin[self.asin].options
            name = next(n for n, values in offered.items() if value in values)
            self.options[name] = value
        else:
            self.asin = next(p.asin for p in self._found if p.asin.lower() == value)

    def _observe(self) -> Obs:
        assert self.task is not None
        lines = [f"instruction: {self.task.payload['instruction']}"]
        if self.bought:
            return Obs("\n".join([*lines, "thank you for shopping"]), [])
        if not self.query:
            return Obs("\n".join([*lines, "search page"]), None)
        if self.asin:
            product = self.catalogue.by_asin[self.asin]
            lines += [product.title, f"price: {product.price:g} dollars", product.description]
            for name, values in product.options.items():
                chosen = self.options.get(name)
                shown = [f"({v})" if v == chosen else v for v in values]
                lines.append(f"{name}: {', '.join(shown)}")
        else:
            lines.append(f"page {self.page + 1}, {len(self._found)} results")
            for product in self._found[self.page * PAGE : (self.page + 1) * PAGE]:
                lines.append(f"{product.asin.lower()}: {product.title}, {product.price:g} dollars")
        return Obs("\n".join(lines), sorted({f"click[{b}]" for b in self._buttons()}))

    def close(self) -> None:
        """Nothing to free."""

    def vocabulary(self) -> list[str]:
        """Words of the catalogue, buttons, and marks; numbers up to 200."""
        found = {
            *words("instruction i want a price lower than dollars thank you for shopping page"),
            *words("results search click back to buy now next prev color size capacity and"),
            *("[", "]", ":", ",", "<", ">", "(", ")"),
            *(str(i) for i in range(201)),
        }
        for p in self.catalogue.products:
            options = " ".join(f"{n} {' '.join(v)}" for n, v in p.options.items())
            found |= set(words(f"{p.asin} {p.title} {p.description} {p.category} {options}"))
        return sorted(found)

    def verify(self, task: Task, state: State) -> bool:
        """Whether what was bought fulfils the whole wish."""
        if not state["bought"]:
            return False
        product = self.catalogue.by_asin[state["bought"]]
        return purchase_reward(product, state["options"], dict(task.payload["goal"])) == 1.0

    FIELDS = ("steps", "done", "query", "page", "asin", "bought")

    def state_dict(self) -> State:
        """The page, the options, and what was bought."""
        return {**{name: getattr(self, name) for name in self.FIELDS}, "options": {**self.options}}

    def load_state_dict(self, state: State) -> None:
        """Goes back to a state of the present task."""
        for name in self.FIELDS:
            setattr(self, name, state[name])
        self.options = dict(state["options"])
        self._found = self.catalogue.search(self.query) if self.query else []


class WebShopEnv(ShopEnv):
    """WebShop's own products and wishes, from its files.

    Args:
        root: Their folder; see :func:`read_webshop`.
        max_steps: After which an episode ends, unpaid.
    """

    def __init__(self, root: str | os.PathLike[str], max_steps: int = MAX_STEPS) -> None:
        catalogue, self._tasks = read_webshop(root)
        super().__init__(catalogue, max_steps)

    def tasks(self, split: str) -> list[Task]:
        """Of ``train``, ``val`` or ``test``."""
        check_choice("split", split, self._tasks)
        return self._tasks[split]


def shop_expert_action(env: ShopEnv) -> str:
    """The next action of a buyer who knows which products fulfil the wish."""
    assert env.task is not None
    goal = dict(env.task.payload["goal"])

    def fits(product: Product) -> bool:
        options = {n: v for n, v in goal["options"].items() if v in product.options.get(n, ())}
        return purchase_reward(product, options, goal) == 1.0

    if not env.query:
        return f"search[{' '.join([*goal['attributes'], goal['kind']])}]"
    if env.asin:
        if not fits(env.catalogue.by_asin[env.asin]):
            return f"click[{PREVIOUS}]"
        for name, value in goal["options"].items():
            if env.options.get(name) != value:
                return f"click[{value}]"
        return f"click[{BUY}]"
    shown = env._found[env.page * PAGE : (env.page + 1) * PAGE]
    match = next((p for p in shown if fits(p)), None)
    if match is not None:
        return f"click[{match.asin.lower()}]"
    return f"click[{NEXT if NEXT in env._buttons() else BACK}]"
