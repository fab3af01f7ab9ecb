"""Where is it, seen from where I stand now? The camera's poses are known here, so the answer is in metres.

    python examples/place_in_space.py [--from-video]

`--from-video` computes the poses from the video itself (about a minute), without a scale.
"""

import sys

import numpy as np

from egohieraloc import Localization3D, Localizer, Query, SpaceSources, demo
from egohieraloc.geometry.place import describe
from egohieraloc.geometry.reconstruction import read_cameras

truth = demo.load_truth()
query = Query.from_image(demo.QUERY, box=truth.query_box)
cameras = None if "--from-video" in sys.argv else read_cameras(demo.FOLDER / "truth.json")

localizer = Localizer.from_pretrained()
result = localizer.locate(query, demo.CLIP, in_3d=True, space=SpaceSources(cameras=cameras))

place = result.place
if not isinstance(place, Localization3D):
    raise SystemExit(f"No place: {place.reason if place else 'not asked for'}")
print(f"It is {describe(place)}.")
print(
    f"In the camera at the query time: {np.round(place.displacement, 2)} {place.unit} (right, down, forward)"
)
print(f"Standard deviation: {np.round(np.sqrt(np.diag(place.covariance)), 3)} {place.unit}")
if cameras is not None:
    error = np.linalg.norm(place.point_world - truth.target_center_world)
    print(f"The truth is {100 * error:.0f} cm away.")
