"""A tree as the MMDG benchmark has it, with faces of noise."""

import numpy as np
from PIL import Image

SPLITS = ("train", "val", "test")
FORMS = {
    "C": "CeFA/CeFA-Race/1_001_1_{i}/{m}/0026.jpg",
    "S": "CASIA-SURF-CROP/real_part/CLKJ_{i}/{m}/131.jpg",
    "W": "WMCA-Image/R_CDIT/{i}/{m}/0012.jpg",
}
FOLDERS = {"C": ("profile", "depth", "ir"), "S": ("color", "depth", "ir")}


def write_tree(root, lists=None, count=4):
    """Writes lists of all four domains with their images; ``lists`` replaces some of them."""
    rng = np.random.default_rng(0)
    (root / "MMDG-Benchmark").mkdir(parents=True)
    for domain in "CPSW":
        for split in SPLITS:
            text = (lists or {}).get((domain, split))
            if text is None:
                text = _write_images(root, domain, split, count, rng)
            (root / f"MMDG-Benchmark/{domain}-{split}.txt").write_text(text)
    return root


def _write_images(root, domain, split, count, rng):
    lines = []
    for i in range(count):
        if domain == "P":
            name = f"PADISI/{split}_{i}.npz"
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            arrays = {
                "color": rng.random((20, 16, 3), dtype=np.float32),
                "depth": rng.integers(400, 900, (1, 20, 16, 1), dtype=np.uint16),
                "nir": rng.integers(0, 4096, (20, 16), dtype=np.uint16),
            }
            np.savez(root / name, **arrays)
            lines.append(f"{name}\t{i % 2}")
            continue
        names = []
        for modality in FOLDERS.get(domain, FOLDERS["S"]):
            name = FORMS[domain].format(i=f"{split}{i}", m=modality)
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shape = (20, 18, 3) if modality in ("color", "profile") else (20, 18)
            Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(root / name)
            names.append(name)
        lines.append(" ".join([*names, str(i % 2)]))
    return "\n".join(lines) + "\n"
