"""The paper's ablations by name, every row of its tables and figures as changed settings; and some of ours.

Settings are written as `--set` takes them. A row either needs weights trained for it, or changes inference
only; `footage.*` applies to training, `network.*` to both, all others to inference.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from egohieraloc.errors import ConfigError


@dataclass(frozen=True)
class Ablation:
    """One row."""

    name: str
    group: str  # the paper's table or figure
    settings: tuple[str, ...]
    trains: bool  # whether it needs weights trained for it
    benchmarks: tuple[str, ...] = ("vq2d",)

    @property
    def network(self) -> tuple[str, ...]:
        """Settings of the network alone, without the leading `network.`"""
        return tuple(word.removeprefix("network.") for word in self.settings if word.startswith("network."))


def _modules() -> list[Ablation]:
    rows = {
        "without-o": ("network.dpm.foreground=false",),
        "without-z": ("network.dpm.likelihood=false",),
        "qam-only": ("network.dpm.foreground=false", "network.dpm.likelihood=false"),
        "dpm-only": ("network.qam.enabled=false",),
    }
    return [Ablation(name, "DPM and QAM", words, True, ("vq2d", "vq3d")) for name, words in rows.items()]


def _backbone() -> list[Ablation]:
    rows = {
        "without-dcm": "collapse=false",
        "stage-3": "stages=3",
        "without-ffn": "feed_forward=false",
        "without-pe": "position=false",
        "resnet-101": "name=resnet101",
    }
    return [Ablation(name, "RAM", (f"network.backbone.{word}",), True) for name, word in rows.items()]


FACTORS = ("average", "threshold", "maximum", "depth", "reprojection", "baseline")
FUSION = {
    "none": (),
    "average": FACTORS[:1],
    "threshold": FACTORS[1:2],
    "maximum": FACTORS[2:3],
    "threshold-maximum": FACTORS[1:3],
    "average-threshold": FACTORS[:2],
    "average-maximum": (FACTORS[0], FACTORS[2]),
    "semantic": FACTORS[:3],
    "semantic-depth": FACTORS[:4],
    "semantic-reprojection": (*FACTORS[:3], FACTORS[4]),
    "semantic-baseline": (*FACTORS[:3], FACTORS[5]),
    "full": FACTORS,
}


def _fusion() -> list[Ablation]:
    """GSJC's factors, without the triangulation that our default adds to the paper's weighted mean."""

    def words(used: tuple[str, ...]) -> tuple[str, ...]:
        off = [name if name in FACTORS[3:] else f"semantic_{name}" for name in FACTORS if name not in used]
        return tuple(f"place.fusion.{name}=false" for name in (*off, "triangulate"))

    return [Ablation(f"gsjc-{name}", "GSJC", words(used), False, ("vq3d",)) for name, used in FUSION.items()]


def _following() -> list[Ablation]:
    parts = {"without-ellipse": "ellipse", "without-multi-peak": "multi_peak"}
    rows = [
        Ablation(name, "QAM", (f"network.qam.{key}=false",), False, ("vq2d", "egotracks"))
        for name, key in parts.items()
    ]
    rows += [
        Ablation(f"top-k-{k}", "Top-K of QAM", (f"network.qam.candidates={k}",), False) for k in (1, 3, 5, 10)
    ]
    rows += [Ablation(f"skip-{k}", "k-frame skipping", (f"search.stride={k}",), False) for k in (2, 3, 4, 5)]
    grid = {
        ("alpha", "sensitivity"): (0.5, 1.5),
        ("gamma", "decay"): (0.2, 0.6),
        ("eta", "smoothing"): (0.5, 0.9),
        ("lambda-e", "ellipse_weight"): (0.3, 0.7),
    }
    for (symbol, key), values in grid.items():
        for value in values:
            words = (f"network.qam.{key}={value}",)
            rows.append(Ablation(f"{symbol}-{value}", "sensitivity of QAM", words, False))
    return rows


def _fallback() -> list[Ablation]:
    rows = {"none": "none", "level-1": "level1", "level-2": "level2", "full": "full"}
    return [
        Ablation(f"fallback-{name}", "fallback", (f"network.query_mask.fallback={value}",), False)
        for name, value in rows.items()
    ]


FULL = Ablation("full", "", (), False, ("vq2d", "vq3d", "egotracks"))
DATA = Ablation("without-visor", "training data", ("footage.visor_share=0.0",), True, ("vq2d", "vq3d"))
OURS = (
    Ablation("without-feedback", "ours", ("network.ram.feedback=false",), True),  # RAM sees stage 3 alone
    Ablation("propagation", "ours", ("network.ram.propagation=true",), True),
    *(
        Ablation(name, "ours", words, False)
        for name, words in {
            "without-drift": ("network.qam.decay=1.0",),  # Omega stays 0
            "score-presence": ("network.ram.score=presence",),
            "score-mask": ("network.ram.score=mask",),
            "without-completion": ("temporal.complete=2.0",),
            "without-second-look": ("search.second_look=false",),
            "without-look-back": ("search.look_back=false",),
            "printed-temperature": ("network.dpm.temperature=1.0",),
            "printed-area": ("network.qam.area_power=1.0",),
            "printed-recursion": ("network.qam.mode=paper",),
            "printed-rule": ("temporal.rule=paper", "temporal.median=5", "temporal.bridge=0"),
        }.items()
    ),
    Ablation(
        "mask-propagation",
        "ours",
        ("search.propagate_above=0.7", "tracker.propagate_above=0.7"),
        False,
        ("vq2d", "egotracks"),
    ),
)
ABLATIONS: dict[str, Ablation] = {
    row.name: row
    for row in (FULL, *_modules(), *_backbone(), *_fusion(), *_following(), *_fallback(), DATA, *OURS)
}


def find_ablation(name: str) -> Ablation:
    """The row of that name."""
    if name not in ABLATIONS:
        near = difflib.get_close_matches(name, ABLATIONS, n=1, cutoff=0)[0]
        raise ConfigError(
            f"No ablation is called '{name}'; did you mean '{near}'? `egohieraloc ablations` lists all."
        )
    return ABLATIONS[name]
