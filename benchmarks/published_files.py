"""Real files of Ego4D's VQ3D, read and scored: EgoLoc publishes them with its code.

    python benchmarks/published_files.py --egoloc DIR     # a checkout of github.com/Wayne-Mai/EgoLoc

Its annotations are Ego4D's own: they must be read without a problem, and every 3D query must lead to a 2D
query of the same object. Its predictions must have the figures that it publishes, and its submission, which
the test server accepted, must pass our validation.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from egohieraloc.data.ego4d import read_vq2d
from egohieraloc.data.ego4d_3d import read_mapping, read_vq3d, visual_queries_of_places
from egohieraloc.evaluation import vq3d
from egohieraloc.evaluation.submission_check import check_vq3d

PUBLISHED = {"L2": 1.45, "Succ*": 98.14, "Succ": 80.49, "QwP": 82.32, "angle to annotator 2": 0.61}
TEST_QUERIES = 264


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--egoloc", type=Path, required=True)
    data = parser.parse_args().egoloc / "data"
    check_annotations(data / "metadata")
    check_predictions(data / "vq3d_results" / "egoloc_val_mf_weighted2d_val.json")
    template = data / "metadata" / "vq3d_test_unannotated_template.json"
    problems = check_vq3d(template, data / "vq3d_results" / "egoloc_test_mf_weighted2d_test.json")
    asked = len(list(read_vq3d(template)))
    print(f"test: {asked} queries, {len(problems)} problems in EgoLoc's submission")
    assert (asked, problems) == (TEST_QUERIES, [])


def check_annotations(folder: Path) -> None:
    places = list(read_vq3d(folder / "vq3d_val.json"))
    queries = [query for clip in read_vq2d(folder / "vq_val_vq3d.json") for query in clip.queries]
    mapping = read_mapping(folder / "mapping_vq2d_to_vq3d_queries_annotations_val.json")
    visual = visual_queries_of_places(places, queries, mapping)
    same = sum(visual[place.key].object_title == place.object_title for place in places)
    print(f"validation: {len(places)} queries, {same} with a 2D query of the same object")
    assert same == len(places)
    assert not any(one.problem for one in (*places, *queries))


def check_predictions(path: Path) -> None:
    scores = vq3d.score(list(read_vq3d(path)), vq3d.read_vq3d_predictions(path))
    figures = (scores.distance_m, scores.success_star, scores.success, scores.coverage, scores.angle_2_rad)
    for (name, published), ours in zip(PUBLISHED.items(), figures, strict=True):
        print(f"  {name:22s} ours {ours:.5f}   published {published}")
        assert ours is not None
        assert abs(ours - published) < 0.006


if __name__ == "__main__":
    main()
