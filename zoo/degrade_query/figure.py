"""Pictures: attention on the drawn molecule, ROC curves, and the ranking of targets."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc, binary_roc

from zoo.degrade_query.result import Explanation, RankedTarget
from zoo.proteins import gene_name, unpack_names

if TYPE_CHECKING:
    from zoo.degrade_query.module import DegradeQuery

SHADE = (1.0, 0.45, 0.1)  # of the atom with the most attention
SIZE = (900, 460)  # of a drawn molecule, pixels
GROUPS = 5  # curves of single targets
BARS = 12


def draw(
    model: DegradeQuery, batch: Mapping[str, Any], outputs: Mapping[str, Any]
) -> dict[str, Figure]:
    """The pictures of one evaluated batch."""
    part, names = batch["tuples"], unpack_names(batch["vocabulary"]["names"])
    target, e3 = names[int(part["target"][0])], names[int(part["e3"][0])]
    smiles = batch["smiles"][0]
    groups = {gene_name(names[i]): part["target"] == i for i in part["target"].unique().tolist()}
    found = {"roc": roc(outputs["probability"], part["label"], groups)}
    if model.network.graph is not None:
        sides = outputs["attention"][0].float().cpu().numpy()
        length = int(part["ptr"][1])
        shown = Explanation(
            smiles,
            sides[0, :length],
            sides[1, :length],
            float(outputs["probability"][0]),
            float(outputs["compatibility"][0]),
        )
        found["attention"] = attention(shown, gene_name(target), gene_name(e3))
    if bool(model.vocabulary.target_count.any()):
        found["ranking"] = ranking(
            model.rank_targets(smiles, e3, top=BARS), target, f"through {gene_name(e3)}"
        )
    return found


def attention(found: Explanation, target: str, e3: str) -> Figure:
    """The molecule twice, with the atoms shaded that each side of the query looks at."""
    figure = Figure(figsize=(9, 7), layout="constrained")
    axes = figure.subplots(2, 1)
    for axis, weights, who in (
        (axes[0], found.target, f"target {target}"),
        (axes[1], found.e3, f"E3 ligase {e3}"),
    ):
        axis.imshow(molecule_picture(found.smiles, weights))
        axis.set_axis_off()
        many = len(weights) * float(weights.max())
        axis.set_title(f"attention of the {who}, at most {many:.1f} times the mean", fontsize=10)
    figure.suptitle(
        f"probability of strong degradation {found.probability:.2f}, "
        f"compatibility {found.compatibility:.2f}"
    )
    return figure


def molecule_picture(smiles: str, weights: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Draws a molecule with its atoms shaded by weight. Shape: (H, W, 3)."""
    from rdkit.Chem.Draw import rdMolDraw2D

    from zoo.molecules import parse_smiles

    mol = parse_smiles(smiles)
    share = weights / max(float(weights.max()), 1e-12)
    colours = {
        i: tuple(1 - s * (1 - c) for c in SHADE) for i, s in enumerate(share.astype(float).tolist())
    }
    drawer = rdMolDraw2D.MolDraw2DCairo(*SIZE)
    options = drawer.drawOptions()
    options.useBWAtomPalette()
    options.highlightRadius = 0.45  # type: ignore[assignment]  # angstroms of the drawing
    rdMolDraw2D.PrepareAndDrawMolecule(
        drawer,
        mol,
        highlightAtoms=list(colours),
        highlightAtomColors=colours,
        highlightBonds=[],
    )
    drawer.FinishDrawing()
    with Image.open(io.BytesIO(drawer.GetDrawingText())) as image:
        picture = np.asarray(image.convert("RGB"))
    ink = np.any(picture < 255, axis=2)
    rows, columns = (np.flatnonzero(np.any(ink, axis=a)) for a in (1, 0))
    return picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def roc(probability: Tensor, label: Tensor, groups: Mapping[str, Tensor]) -> Figure:
    """ROC of all tuples, and of the targets with the most of them.

    Args:
        probability: Shape: (B,).
        label: Shape: (B,).
        groups: Rows of each target, by name. Shape of each: (B,), bool.
    """
    probability, label = probability.float().cpu(), label.cpu()
    figure = Figure(figsize=(5, 4.6), layout="constrained")
    axis = figure.subplots()
    largest = sorted(groups, key=lambda name: -int(groups[name].sum()))[:GROUPS]
    chosen: Sequence[tuple[str, Tensor]] = [
        ("all targets", torch.ones_like(label, dtype=torch.bool)),
        *((name, groups[name].cpu()) for name in largest),
    ]
    for name, rows in chosen:
        count, positive = int(rows.sum()), int(label[rows].sum())
        if not 0 < positive < count:
            continue
        false, true, _ = binary_roc(probability[rows], label[rows])
        area = float(binary_auroc(probability[rows], label[rows]))
        style = {"lw": 2.2, "color": "black"} if name == "all targets" else {"lw": 1.0}
        axis.plot(false, true, label=f"{name}: {area:.2f} ({count})", **style)
    axis.plot([0, 1], [0, 1], ":", color="grey", lw=1)
    axis.set_xlabel("false positive rate")
    axis.set_ylabel("true positive rate")
    axis.set_title("ROC of this batch: area (tuples)", fontsize=10)
    axis.legend(fontsize=8, loc="lower right")
    axis.set_aspect("equal")
    return figure


def ranking(found: Sequence[RankedTarget], true: str, title: str) -> Figure:
    """Compatibility of the best-fitting targets; the recorded one is marked."""
    figure = Figure(figsize=(6.4, 0.32 * len(found) + 1.4), layout="constrained")
    axis = figure.subplots()
    colours = ["tab:orange" if one.target == true else "tab:blue" for one in found]
    axis.barh(range(len(found)), [one.compatibility for one in found], color=colours)
    axis.set_yticks(
        range(len(found)),
        [f"{one.gene}  (p {one.probability:.2f}, {one.labels} labels)" for one in found],
        fontsize=8,
    )
    axis.invert_yaxis()
    axis.set_xlabel("compatibility of the tuple")
    where = (
        "orange: as recorded"
        if any(one.target == true for one in found)
        else (f"recorded target {gene_name(true)} is not among them")
    )
    axis.set_title(f"targets that fit best {title}\n{where}", fontsize=10)
    return figure
