"""Does each factor of the weight help? A simulation with known truth, over four kinds of noise.

    python benchmarks/fusion_ablation.py [--trials 200] [--plot docs/fusion_ablation.png]

Twelve views from an arc of 5 to 60 degrees see an object at 1 to 4 m. One kind of noise is raised at a time:
the centre of the mask, depth (a common error and one of each view), the poses, the share of views that show
another object. A view's score falls as its centre gets worse, and its depth variance rises as its depth does,
as in real answers, but loosely. Bars are 95 % intervals of the median (bootstrap).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from egohieraloc.config import FusionConfig
from egohieraloc.geometry.camera import Camera, CameraPose
from egohieraloc.geometry.gsjc import ObjectView, fuse
from egohieraloc.types import Floats

CAMERA = Camera("PINHOLE", 640, 480, (500.0, 500.0, 320.0, 240.0))
NUM_VIEWS = 12
BASE = {"mask_px": 3.0, "depth_share": 0.05, "pose_deg": 0.2, "outlier_share": 0.1}
LEVELS = {
    "mask_px": (0.0, 3.0, 8.0, 20.0),
    "depth_share": (0.0, 0.05, 0.15, 0.3),
    "pose_deg": (0.0, 0.2, 0.6, 1.5),
    "outlier_share": (0.0, 0.1, 0.25, 0.4),
}
TITLES = {
    "mask_px": "error of the centre (px)",
    "depth_share": "error of the depth (share)",
    "pose_deg": "error of the poses (degrees, cm)",
    "outlier_share": "views of another object (share)",
}
SEMANTIC = ("semantic_average", "semantic_threshold", "semantic_maximum")
OFF = dict.fromkeys((*SEMANTIC, "depth", "reprojection", "baseline"), False)
RULES = {
    "unweighted mean": FusionConfig(triangulate=False, **OFF),
    "semantic only, mean": FusionConfig(triangulate=False, **OFF | {SEMANTIC[0]: True}),
    "paper": FusionConfig(literal=True),
    "default": FusionConfig(),
    "without semantic": FusionConfig(**dict.fromkeys(SEMANTIC, False)),
    "without depth": FusionConfig(depth=False),
    "without reprojection": FusionConfig(reprojection=False),
    "without baseline": FusionConfig(baseline=False),
    "without rays": FusionConfig(triangulate=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--plot", type=Path, default=Path("docs/fusion_ablation.png"))
    options = parser.parse_args()
    errors = {
        (noise, level): run(BASE | {noise: level}, options.trials)
        for noise, levels in LEVELS.items()
        for level in levels
    }
    show(errors)
    draw(errors, options.plot)


def run(noise: dict[str, float], trials: int) -> dict[str, Floats]:
    """Relative error (share of the distance) of every rule in every trial; 1 where there is no answer."""
    errors: dict[str, list[float]] = {name: [] for name in RULES}
    for seed in range(trials):
        views, instance, distance = make_views(np.random.default_rng(seed), noise)
        for name, config in RULES.items():
            scored = (
                views
                if any(getattr(config, s) for s in SEMANTIC)
                else [replace(v, semantic=1.0) for v in views]
            )
            answer = fuse(scored, config)
            error = 1.0 if answer is None else float(np.linalg.norm(answer.point_world - instance)) / distance
            errors[name].append(min(error, 1.0))
    return {name: np.array(values) for name, values in errors.items()}


def make_views(
    generator: np.random.Generator, noise: dict[str, float]
) -> tuple[list[ObjectView], Floats, float]:
    distance, spread = generator.uniform(1, 4), np.radians(generator.uniform(5, 60))
    instance = generator.uniform(-3, 3, 3)
    diagonal = 500 * generator.uniform(0.1, 0.4) / distance
    common = generator.normal(0, noise["depth_share"] / 2)
    outliers = generator.permutation(NUM_VIEWS) < round(noise["outlier_share"] * NUM_VIEWS)
    views = []
    for i, angle in enumerate(np.linspace(-spread / 2, spread / 2, NUM_VIEWS)):
        pose = look_at(
            instance - distance * np.array([np.sin(angle), generator.uniform(-0.1, 0.1), np.cos(angle)]),
            instance,
        )
        x, y, z = pose.to_cam(instance)
        mask_scale, depth_scale = generator.lognormal(0, 0.7, 2)
        pixel = CAMERA.project([x, y, z])[0] + generator.normal(0, noise["mask_px"] * mask_scale, 2)
        depth = z * (1 + common + generator.normal(0, noise["depth_share"] * depth_scale))
        semantic = np.clip(0.95 - 0.15 * mask_scale + generator.normal(0, 0.05), 0.1, 1)
        if outliers[i]:
            pixel += generator.choice([-1, 1], 2) * generator.uniform(60, 200, 2)
            depth *= generator.uniform(0.5, 2)
            semantic = generator.uniform(0.3, 0.9)
        variance = (noise["depth_share"] * depth_scale * generator.lognormal(0, 0.3) + 0.01) ** 2
        views.append(
            ObjectView(
                frame_index=i,
                camera=CAMERA,
                pose=shaken(pose, noise["pose_deg"], generator),
                pixel=pixel,
                pixel_error=float(np.hypot(1, 0.08 * diagonal)),
                diagonal_px=diagonal,
                semantic=float(semantic),
                depth=float(max(depth, 0.05)),
                depth_error=float(np.hypot(np.sqrt(variance), 0.05) * z),
                depth_variance=float(variance),
            )
        )
    return views, instance, float(distance)


def look_at(center: Floats, target: Floats) -> CameraPose:
    forward = (target - center) / np.linalg.norm(target - center)
    right = np.cross([0, 1.0, 0], forward)
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(forward, right), forward])
    return CameraPose.from_rotation(rotation, -rotation @ center)


def shaken(pose: CameraPose, degrees: float, generator: np.random.Generator) -> CameraPose:
    turn = Rotation.from_rotvec(np.radians(generator.normal(0, degrees, 3))).as_matrix()
    center = pose.center_world + generator.normal(0, 0.01 * degrees, 3)
    rotation = turn @ pose.rotation
    return CameraPose.from_rotation(rotation, -rotation @ center)


def interval(values: Floats) -> tuple[float, float, float]:
    """Median and its 95 % bootstrap interval."""
    generator = np.random.default_rng(0)
    medians = np.median(generator.choice(values, (500, len(values))), axis=1)
    return float(np.median(values)), *map(float, np.percentile(medians, (2.5, 97.5)))


def show(errors: dict[tuple[str, float], dict[str, Floats]]) -> None:
    print("median error in % of the distance [95 % interval]")
    for noise, levels in LEVELS.items():
        print(f"\n{TITLES[noise]:<32}", *(f"{level:>18g}" for level in levels))
        for name in RULES:
            cells = [interval(100 * errors[noise, level][name]) for level in levels]
            print(f"{name:<32}", *(f"{m:6.2f} [{a:4.1f},{b:5.1f}]" for m, a, b in cells))
    everything = {name: np.concatenate([found[name] for found in errors.values()]) for name in RULES}
    print("\nall conditions: mean error with the factor minus without, in % of the distance (paired)")
    for name in RULES:
        if name.startswith("without"):
            gain = 100 * (everything["default"] - everything[name])
            bar = 1.96 * gain.std() / np.sqrt(len(gain))
            print(f"{name.removeprefix('without '):<16}{gain.mean():+7.2f} +- {bar:.2f}")


def draw(errors: dict[tuple[str, float], dict[str, Floats]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(LEVELS), figsize=(15, 4.2), sharey=True)
    for axis, (noise, levels) in zip(axes, LEVELS.items(), strict=True):
        for k, name in enumerate(RULES):
            rows = np.array([interval(100 * errors[noise, level][name]) for level in levels])
            place = np.arange(len(levels)) + 0.05 * (k - len(RULES) / 2)
            bars = np.abs(rows[:, 1:].T - rows[:, 0])
            style = "-" if name == "default" else ":" if name.startswith("without") else "--"
            axis.errorbar(place, rows[:, 0], bars, label=name, linestyle=style, marker="o", markersize=3)
        axis.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
        axis.set_xlabel(TITLES[noise])
        axis.set_yscale("log")
    axes[0].set_ylabel("median error (% of the distance)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=len(RULES), fontsize=8)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
