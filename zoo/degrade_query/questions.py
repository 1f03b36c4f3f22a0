"""The questions that a chemist asks of a trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zoo.base import ZooModule
from zoo.degrade_query.encoders import Encoded
from zoo.degrade_query.network import DegradeQueryNet
from zoo.degrade_query.result import Explanation, RankedTarget
from zoo.degrade_query.vocabulary import Vocabulary
from zoo.errors import ZooError, did_you_mean
from zoo.language_features import LanguageModel, embed
from zoo.molecules import featurize
from zoo.proteins import OTHER_E3, find_ligase, find_protein, gene_name

if TYPE_CHECKING:
    from zoo.degrade_query.module import DegradeQuery


class Answer(NamedTuple):
    """Of S pairs of target and ligase for each of B molecules.

    Attributes:
        logit: Of high degradation, calibrated. Shape: (B, S).
        compatibility: Would the tuple be recorded at all? -1..1. Shape: (B, S).
        attention: Of target's and ligase's side over the atoms. Shape: (B, S, 2, A).
        repr: What degradation is read from. Shape: (B, S, d).
    """

    logit: Tensor
    compatibility: Tensor
    attention: Tensor
    repr: Tensor


class Questions(ZooModule):
    """What DegradeQuery answers from SMILES and names, apart from how it is trained."""

    network: DegradeQueryNet
    vocabulary: Vocabulary
    temperature: Tensor
    smiles_model: LanguageModel | None
    protein_model: LanguageModel | None

    def predict(
        self,
        smiles: str | Sequence[str],
        target: str,
        e3: str,
        features: NDArray[np.floating[Any]] | None = None,
        sequence: str | None = None,
    ) -> NDArray[np.float32]:
        """How likely molecules are to degrade a target strongly.

        Args:
            smiles: One SMILES or several.
            target: UniProt accession or gene name.
            e3: E3 ligase: "CRBN", "VHL", ..., an accession, or "Other".
            features: Of a target that the model does not know, made as those of training. Shape:
                (P,).
            sequence: Of such a target, where ``protein_model`` made the features of training.

        Returns:
            Probabilities. Shape: (B,).

        Raises:
            ZooError: If a SMILES is wrong (it says where), or a protein is not known.
        """
        if sequence is not None:
            if self.protein_model is None:
                raise ZooError("sequence= needs a model that was trained with a protein_model.")
            features = embed([sequence], self.protein_model)[0].numpy()
        with self.evaluating():
            molecule = self._encode_smiles(smiles)
            rows, feats = self._find(target, e3, features)
            logit = self._ask(molecule, rows, feats).logit
        return logit[:, 0].sigmoid().cpu().numpy()

    def rank_targets(
        self, smiles: str, e3: str, top: int = 10, targets: Sequence[str] | None = None
    ) -> list[RankedTarget]:
        """Which targets one molecule would degrade: a counterfactual scan over all of training's.

        The molecule is encoded once.

        Args:
            smiles: Of the molecule.
            e3: E3 ligase.
            top: How many to return.
            targets: Instead of all targets of training.

        Returns:
            In order of falling compatibility, see :class:`RankedTarget`.

        Raises:
            ZooError: As :meth:`predict`.
        """
        if targets is None:
            ranked = self.vocabulary.ranked(self.vocabulary.target_count)
            names = [name for name, _ in ranked]
        else:
            names = [find_protein(name, self.vocabulary.index()) for name in targets]
        if not names:
            raise ZooError("The model knows no targets: it is not trained.")
        with self.evaluating():
            molecule = self._encode_smiles(smiles)
            t, features = self.vocabulary.feature_rows(names)
            (_, e), (_, e_feat) = self._find(names[0], e3)
            wide = len(names)
            found = self._ask(molecule, (t, e.expand(wide)), (features, e_feat.expand(wide, -1)))
        probability, fit = found.logit[0].sigmoid(), found.compatibility[0]
        order = fit.argsort(descending=True)[:top].tolist()
        return [
            RankedTarget(
                target=names[i],
                gene=gene_name(names[i]),
                compatibility=float(fit[i]),
                probability=float(probability[i]),
                labels=int(self.vocabulary.labels[t[i]]),
            )
            for i in order
        ]

    def explain(self, smiles: str, target: str, e3: str) -> Explanation:
        """Which atoms the answer looks at.

        Args:
            smiles: Of one molecule.
            target: As of :meth:`predict`.
            e3: As of :meth:`predict`.

        Returns:
            Attention of the target's and of the ligase's side, by atom in RDKit's order.

        Raises:
            ZooError: As :meth:`predict`; if the model has no graph.
        """
        if self.network.graph is None:
            raise ZooError("explain looks at atoms: train with molecule='both' or 'graph'.")
        with self.evaluating():
            molecule = self._encode_smiles(smiles)
            rows, features = self._find(target, e3)
            found = self._ask(molecule, rows, features)
        sides = found.attention[0, 0].float().cpu().numpy()
        return Explanation(
            smiles=smiles.strip(),
            target=sides[0],
            e3=sides[1],
            probability=float(found.logit[0, 0].sigmoid()),
            compatibility=float(found.compatibility[0, 0]),
        )

    def adapt(
        self,
        support: Sequence[tuple[str, str, str, int]],
        steps: int = 50,
        lr: float = 1e-3,
        anchor: float = 1e-2,
    ) -> DegradeQuery:
        """A copy that has seen a few labels of a target.

        Args:
            support: SMILES, target, E3 ligase, and label 1 or 0, of one target or several.
            steps: Of AdamW on the target's identity, FiLM and the head, about 5 % of the weights.
            lr: Its learning rate.
            anchor: Weight of the squared distance to the start (L2-SP, arXiv 1802.01483).

        Raises:
            ZooError: As :meth:`predict`; if a label is neither 1 nor 0.
        """
        from zoo.degrade_query.adapt import adapted
        from zoo.degrade_query.module import DegradeQuery

        assert isinstance(self, DegradeQuery)
        return adapted(self, support, steps, lr, anchor)

    def _encode_smiles(self, smiles: str | Sequence[str]) -> Encoded:
        given = [smiles] if isinstance(smiles, str) else list(smiles)
        if not given:
            raise ZooError("predict needs at least one SMILES.")
        table, wrong = featurize(given)
        for row, error in wrong.items():
            raise ZooError(
                f"Molecule {row + 1} of {len(given)}: {error}" if len(given) > 1 else error
            )
        batch: dict[str, Tensor] = table.batch(np.arange(len(table)))
        if self.smiles_model is not None:
            batch["language"] = embed(table.canonical.tolist(), self.smiles_model)
        return self._encode({name: value.to(self.device) for name, value in batch.items()})

    def _find(
        self, target: str, e3: str, features: NDArray[np.floating[Any]] | None = None
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Rows (1,) and raw features (1, P) of a target and a ligase."""
        known = self.vocabulary.index()
        t_name, e_name = find_protein(target, known), find_ligase(e3, known)
        t, t_feat = self.vocabulary.feature_rows([t_name])
        if features is not None:
            given = torch.as_tensor(np.asarray(features), dtype=torch.float32, device=self.device)
            if given.shape != t_feat.shape[1:]:
                raise ZooError(
                    f"features have the shape {tuple(given.shape)}: expected "
                    f"({t_feat.shape[1]},), as in training."
                )
            t_feat = given[None]
        elif self.vocabulary.fitted and t_name not in known and not t_feat.any():
            near = did_you_mean(t_name, known)
            raise ZooError(
                f"Target {target!r} ({t_name}) is not known to the model, which knows "
                f"{len(known)} proteins: give features= of it.{near}"
            )
        e, e_feat = self.vocabulary.feature_rows([e_name])
        if not self.vocabulary.e3_count[e].any() and OTHER_E3 in known:
            other, other_feat = self.vocabulary.feature_rows([OTHER_E3])
            # A rare ligase: training had it, if at all, in the bag of others.
            if self.vocabulary.e3_count[other].any() or not e_feat.any():
                e, e_feat = other, other_feat
        return (t, e), (t_feat, e_feat)

    def _ask(
        self, molecule: Encoded, rows: tuple[Tensor, Tensor], features: tuple[Tensor, Tensor]
    ) -> Answer:
        """The answers for B molecules with the same S pairs."""
        batch = len(molecule.pooled)
        target, e3 = (one.expand(batch, -1) for one in rows)
        target_feat, e3_feat = (one.expand(batch, -1, -1) for one in features)
        return self._answer(molecule, target, e3, target_feat, e3_feat)

    def _answer(
        self, molecule: Encoded, target: Tensor, e3: Tensor, target_feat: Tensor, e3_feat: Tensor
    ) -> Answer:
        """Both questions about S pairs of each molecule; their proteins are encoded once."""
        proteins = self._proteins(target, e3, target_feat, e3_feat)
        r, attention = self.network.tuple(molecule, *proteins)
        matched, _ = self.network.matching(molecule, *proteins)
        logit = self.network.degradation(r)[..., 0].float() / self.temperature
        return Answer(logit, self.network.compatibility(matched), attention, r)

    def _encode(self, part: Mapping[str, Any]) -> Encoded:
        """The molecules of a batch.

        Raises:
            ZooError: If the data's language model is not the model's.
        """
        language = part.get("language")
        expected = self.smiles_model.width if self.smiles_model is not None else None
        found = language.shape[1] if language is not None else None
        if found != expected:
            raise ZooError(
                f"The data's features of SMILES are {found} numbers wide, but the model expects "
                f"{expected}: name the same smiles_model in both."
            )
        return self.network.encode(part["fp"], part["atoms"], part["bonds"], part["ptr"], language)

    def _fuse(
        self, molecule: Encoded, target: Tensor, e3: Tensor, target_feat: Tensor, e3_feat: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Representation (B, S, d) and attention of S pairs of each molecule, for degradation."""
        proteins = self._proteins(target, e3, target_feat, e3_feat)
        fused: tuple[Tensor, Tensor] = self.network.tuple(molecule, *proteins)
        return fused

    def _match(
        self, molecule: Encoded, target: Tensor, e3: Tensor, target_feat: Tensor, e3_feat: Tensor
    ) -> Tensor:
        """What compatibility is read from, of S pairs of each molecule. Shape: (B, S, d)."""
        proteins = self._proteins(target, e3, target_feat, e3_feat)
        r: Tensor = self.network.matching(molecule, *proteins)[0]
        return r

    def _proteins(
        self, target: Tensor, e3: Tensor, target_feat: Tensor, e3_feat: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Targets and ligases, encoded. Shapes: (..., d)."""
        vocabulary, protein = self.vocabulary, self.network.protein
        t = protein(vocabulary.identity(target), vocabulary.normalise(target_feat), 0)
        e = protein(vocabulary.identity(e3), vocabulary.normalise(e3_feat), 1)
        return t, e
