"""Writes the seeds of the corpus: a small good file or more for each parser.

PYTHONPATH=tests:tests/evaluation python tests/fuzz/make_seeds.py
"""

from __future__ import annotations

import base64
import io
import json
import sqlite3
import tempfile
import zipfile
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pillow_heif
import torch
from fake_ego4d import make_tree
from fake_tracking import make_egotracks
from PIL import Image

from egohieraloc.config import BackboneConfig, NeckConfig, NetworkConfig, RamConfig
from egohieraloc.geometry import reconstruction
from egohieraloc.geometry.formats.colmap import write_model
from egohieraloc.inference.chunks import PHASES
from egohieraloc.inference.packing import DTYPES, PackedFeatures
from egohieraloc.inference.regions import CODEWORDS, RegionMemory
from egohieraloc.inference.store import FeatureStore
from egohieraloc.memory.catalogue import APPLICATION, SCHEMA, VERSION
from egohieraloc.models.compiled import write_parts
from egohieraloc.models.graphs import PartGraph
from egohieraloc.models.network import EgoHieraLocNet
from egohieraloc.models.weights import save_weights
from egohieraloc.query import Query
from egohieraloc.types import Box
from footage_world import write_visor
from made_up import cameras, result

pillow_heif.register_heif_opener()
CORPUS = Path(__file__).parent / "corpus"
IMAGE = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)


def put(parser: str, name: str, data: bytes | str) -> None:
    path = CORPUS / parser / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def encoded(ending: str, image: np.ndarray = IMAGE) -> bytes:
    return cv2.imencode(ending, image)[1].tobytes()


def video(name: str, codec: str, **tags: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        with av.open(str(path), "w", options={"movflags": "use_metadata_tags"} if tags else {}) as output:
            output.metadata.update(tags)
            stream = output.add_stream(codec, rate=5)
            stream.width, stream.height = 32, 32
            if codec in ("h264", "mpeg4", "vp8"):
                stream.pix_fmt = "yuv420p"
            for number in range(4):
                rgb = np.full((32, 32, 3), 50 * number, np.uint8)
                output.mux(
                    stream.encode(
                        av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format=stream.pix_fmt)
                    )
                )
            output.mux(stream.encode())
        return path.read_bytes()


def images() -> None:
    for ending in (".png", ".jpg", ".webp", ".bmp", ".tiff", ".ppm"):
        put("image", f"small{ending}", encoded(ending))
        put("mask", f"small{ending}", encoded(ending))
    put("image", "alpha.png", encoded(".png", np.dstack([IMAGE, IMAGE[..., :1]])))
    put("map", "map.txt", base64.b64encode(encoded(".png", IMAGE[..., 0])))
    put("depth_png", "7.png", encoded(".png", IMAGE[..., 0].astype(np.uint16) * 20))
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/a.npy", IMAGE[..., 0].astype(np.float32))
        put("depth_npy", "7.npy", Path(folder, "a.npy").read_bytes())
    grey = av.VideoFrame.from_ndarray(np.ones((9, 12), np.float32), format="grayf32le")
    codec = av.CodecContext.create("exr", "w")
    codec.width, codec.height, codec.pix_fmt, codec.time_base = 12, 9, "grayf32le", Fraction(1, 5)
    put("exr", "7.exr", b"".join(bytes(packet) for packet in [*codec.encode(grey), *codec.encode()]))
    photographs()


def photographs() -> None:
    picture, exif = Image.fromarray(IMAGE), Image.Exif()
    block = exif.get_ifd(0x8769)
    exif[0x0112], exif[0x0132] = 6, "2026:03:12 10:15:30"  # turned; when it was taken
    block[0x9003], block[0x9011], block[0xA405] = "2026:03:12 10:15:30", "+01:00", 28
    for ending in ("jpeg", "webp", "png", "heif"):
        data = io.BytesIO()
        picture.save(data, ending, exif=exif)
        put("heif" if ending == "heif" else "photograph", f"1.{ending}", data.getvalue())


def videos() -> None:
    put("video", "a.mp4", video("a.mp4", "h264"))
    put(
        "video", "tagged.mp4", video("a.mp4", "h264", creation_time="2026-03-12T10:15:30Z", date="2026-03-12")
    )
    put("video", "a.mkv", video("a.mkv", "mpeg4"))
    put("video", "a.avi", video("a.avi", "mpeg4"))
    put("video", "a.ts", video("a.ts", "h264"))
    put("video", "a.y4m", b"YUV4MPEG2 W16 H16 F5:1 Ip C420\n" + (b"FRAME\n" + bytes(384)) * 3)
    put("times", "times.txt", "0.0\n0.25\n1.5\n")


def words() -> None:
    put("json", "a.json", json.dumps({"a": [1, 2.5, None, True, "x\u00e9\U0001f600"], "b": {"c": [[], {}]}}))
    put("toml", "a.toml", 'a = 1\nb = [1.5, "x"]\n[c.d]\ne = true\nf = 2024-01-01\n')
    put(
        "recipe",
        "a.toml",
        'preset = "tiny"\n[optim]\nsteps = 10\nlearning_rate = 1e-4\n[network.neck]\nwidth = 16\n',
    )
    put("setting", "a.txt", "learning_rate=0.001")
    put("setting", "b.txt", "steps=10")
    put("box", "a.txt", "1,2.5,30,40")
    put("length", "a.txt", "24,410,220,520,230,0.75")
    put("positions", "a.txt", "# frame x y z\n12 0.1 0.2 1.5\n13 0.1 0.3 1.5\n14 0.2 0.3 1.6\n")
    put("time", "a.txt", "1:02:07.2")
    put("time", "b.txt", "7.2s")
    put("moment", "a.txt", "2026-03-12T10:15:30+01:00")
    put("file_name", "a.txt", "PXL_20260312_101530123")
    put("file_name", "b.txt", "2026-03-12 at 10.15.30+01:00")
    put("rectangles", "a.txt", "1,2,30,40\n2,3,30,40\n")
    put("table", "a.csv", "method,score,time\nours,0.5,10\ntheirs,0.4,20\n")
    put("table", "a.md", "| method | score |\n|---|---|\n| ours | 0.5 |\n")
    records = [{"step": n, "total": 1.0 / n, "learning_rate": 1e-4, "time_s": 0.1} for n in (1, 2)]
    put(
        "log", "log.jsonl", "".join(json.dumps(row) + "\n" for row in [*records, {"step": 2, "success": 0.5}])
    )


def answers() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made_up = result()
        small = replace(made_up, query=Query(IMAGE, Box(1, 1, 8, 8)))
        put("result", "result.json", small.save(folder).read_bytes())
        reconstruction.write_cameras(f"{folder}/cameras.json", cameras())
        put("cameras", "cameras.json", Path(folder, "cameras.json").read_bytes())
        reconstruction.save(f"{folder}/a.npz", cameras())
        put("reconstruction", "a.npz", Path(folder, "a.npz").read_bytes())
        config = NetworkConfig(
            input_size=64,
            query_sizes=(32,),
            backbone=BackboneConfig(name="efficientnet_lite0"),
            neck=NeckConfig(width=8, match=8, context=8, fine8=4, fine4=2),
            ram=RamConfig(width=8, attention_layers=1, heads=1),
        )
        torch.manual_seed(0)
        save_weights(f"{folder}/a.safetensors", EgoHieraLocNet(config), bits=8)
        whole = Path(folder, "a.safetensors").read_bytes()
        header = 8 + int.from_bytes(whole[:8], "little")
        fields = json.loads(whole[8:header])
        del fields["__metadata__"]["checksum"]  # as the tensors are left out: 3 MB in every copy
        put("weights", "header.json", json.dumps(fields))
        network = EgoHieraLocNet(config)
        graph = PartGraph(b"<net/>", b"weights")
        write_parts(Path(folder, "a.openvino"), {"encoder": graph, "decoder": graph}, network)
        put("parts", "a.openvino", Path(folder, "a.openvino").read_bytes())
        for name, zipped in (("zip.pth", True), ("pickle.pth", False)):
            torch.save(
                {"a": torch.ones(3), "b": torch.zeros(2, 2)},
                f"{folder}/{name}",
                _use_new_zipfile_serialization=zipped,
            )
            put("checkpoint", name, Path(folder, name).read_bytes())


def stores() -> None:
    """What is kept of videos."""
    with tempfile.TemporaryDirectory() as folder:
        shapes = {name: (1,) if name == "match_scale" else (1, 2, 3, 3) for name in DTYPES}
        packed = PackedFeatures(**{name: np.ones(shapes[name], dtype) for name, dtype in DTYPES.items()})
        FeatureStore(Path(folder)).write(0, packed)
        put("chunk", "a.safetensors", Path(folder, "chunk-000000.safetensors").read_bytes())
        memory = RegionMemory(Path(folder))
        for number in (0, PHASES):
            memory.add(number, np.ones((CODEWORDS, 8), np.int8))
        put("manifest", "manifest.txt", Path(folder, "manifest.txt").read_bytes())
        with closing(sqlite3.connect(f"{folder}/small.sqlite")) as db:
            db.executescript(SCHEMA)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")
            values = "'a', 'a', '/a.mp4', NULL, 96, 64, '10/1', 30, 3.0, 0, 0, 'given', NULL, 0, 1"
            db.execute(f"INSERT INTO videos VALUES ({values})")
            db.execute("PRAGMA page_size = 512")
            db.commit()
            db.execute("VACUUM")
        put("catalogue", "a.sqlite", Path(folder, "small.sqlite").read_bytes())


def poses() -> None:
    """What other programs write of a camera's path."""
    lens = {"fl_x": 500.0, "fl_y": 500.0, "cx": 32.0, "cy": 24.0, "w": 64, "h": 48}
    frames = [{"file_path": f"{n}.png", "transform_matrix": np.eye(4).tolist()} for n in range(2)]
    put("transforms", "a.json", json.dumps({**lens, "frames": frames}))
    matrix = {"K": [500, 0, 0, 0, 500, 0, 32, 24, 1], "w": 64, "h": 48}
    path = json.dumps({**matrix, "poses": [[0, 0, 0, 1, 0, 0, n] for n in (0, 1)]})
    put("record3d", "metadata", path)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("metadata"), path)
    put("r3d", "a.r3d", packed.getvalue())
    rows = "0.1, 0, 0, 0, 0, 0, 0, 0, 1\n0.2, 1, 1, 0, 0, 0, 0, 0, 1\n"
    put("camera_matrix", "a.csv", "500,0,32\n0,500,24\n0,0,1\n")
    models()
    put("stray", "odometry.csv", f"timestamp, frame, x, y, z, qx, qy, qz, qw\n{rows}")
    camera = {"fx": 500.0, "fy": 500.0, "cx": 32.0, "cy": 24.0, "width": 64, "height": 48}
    cells = {f"t_{row}{column}": float(row == column) for row in range(3) for column in range(4)}
    put("polycam", "0.json", json.dumps({**camera, **cells}))
    put("trajectory", "tum.txt", "# time x y z qx qy qz qw\n0.1 0 0 0 0 0 0 1\n0.2 1 0 0 0 0 0 1\n")
    rows = "1403636579758555392,0,0,0,1,0,0,0\n1403636579858555392,1,0,0,1,0,0,0\n"
    put("trajectory", "euroc.csv", f"#timestamp,x,y,z,w,x,y,z\n{rows}")
    put("intrinsics", "a.txt", "64 48 500 500 32 24\n")
    lists = {"resolution": [64, 48], "intrinsics": [500, 500, 32, 24]}
    named = "".join(f"{name}: {values}\n" for name, values in lists.items())
    put("sensor", "sensor.yaml", f"{named}T_BS:\n  data: {np.eye(4).ravel().tolist()}\n")
    parts = [f"{name}_world_device" for name in ("tx", "ty", "tz", "qx", "qy", "qz", "qw")]
    header = ",".join(["graph_uid", "tracking_timestamp_us", "utc_timestamp_ns", *parts, "quality_score"])
    rows = "".join(f"0,{1000 + 5000 * n},0,{n},0,0,0,0,0,1,1.0\n" for n in range(3))
    points = "uid,graph_uid,px_world,py_world,pz_world,inv_dist_std,dist_std"
    put("aria_points", "points.csv", f"{points}\n1,a,0.1,0.2,0.3,0.001,0.002\n2,a,1,2,3,0.1,0.2\n")
    put("aria_path", "a.csv", f"{header}\n{rows}")


def models() -> None:
    """A model of COLMAP as text and binary, its three files one after the other."""
    import pycolmap

    with tempfile.TemporaryDirectory() as folder:
        known = cameras()
        write_model(Path(folder), known, {index: f"{index}.png" for index in known.poses})
        pycolmap.Reconstruction(folder).write_binary(folder)
        for ending in ("txt", "bin"):
            files = [
                Path(folder, f"{name}.{ending}").read_bytes() for name in ("cameras", "images", "points3D")
            ]
            put("colmap", f"model.{ending}", b"\n====\n".join(files))


def annotations() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        vq2d = make_tree(root / "ego4d", 1)[0].read_bytes()
        put("ego4d", "vq.json", vq2d)
        put("packed", "vq.json", vq2d)
        (root / "egotracks").mkdir()
        put("egotracks", "egotracks.json", make_egotracks(root / "egotracks")[0].read_bytes())
        put("visor", "visor.json", next(write_visor(root / "visor").rglob("*.json")).read_bytes())
    put("clip_lengths", "a.json", json.dumps({"clip": {"frames": [1, 2]}}))
    small = Path(__file__).parents[1] / "evaluation" / "fixtures" / "vq3d_small.json"
    put("vq3d", "vq3d.json", small.read_bytes())
    put("vq3d_mapping", "a.json", json.dumps({"v": {"c": {"0": {"1": {"ai": 0, "qset_id": "1"}}}}}))
    pose = {"camera_poses": np.eye(3, 4)[None].tolist(), "good_poses": [True]}
    put("vq3d_poses", "a.json", json.dumps({"clip": pose}))
    put(
        "vq3d_intrinsics",
        "a.json",
        json.dumps({"scan": {"('640', '480')": {"f": 500.0, "cx": 320, "cy": 240, "k1": 0.1, "k2": 0}}}),
    )


def predictions() -> None:
    key = {"clip": "c", "annotation": "a", "query_set": "1"}
    track = {**key, "frames": [1, 2], "boxes_xyxy": [[0, 0, 5, 5], [1, 1, 6, 6]], "score": 0.5}
    put(
        "tracks",
        "a.jsonl",
        json.dumps({"egohieraloc_predictions": 1, "benchmark": "vq2d"}) + "\n" + json.dumps(track) + "\n",
    )
    place = {
        **key,
        "point_world": [1, 2, 3],
        "displacement": [0, 0, 1],
        "query_from_world": np.eye(4).tolist(),
    }
    put(
        "places",
        "a.jsonl",
        json.dumps({"egohieraloc_predictions": 1, "benchmark": "vq3d"}) + "\n" + json.dumps(place) + "\n",
    )
    box = {"fno": 1, "x1": 0, "y1": 0, "x2": 5, "y2": 5}
    challenge = {
        "version": "1.0.5",
        "challenge": "ego4d_vq2d_challenge",
        "results": {
            "videos": [
                {
                    "video_uid": "v",
                    "clips": [
                        {
                            "clip_uid": "c",
                            "predictions": [{"query_sets": {"1": {"bboxes": [box], "score": 0.5}}}],
                        }
                    ],
                }
            ]
        },
    }
    put(
        "egotracks_predictions",
        "a.json",
        json.dumps({"v_1_a": {"3": [1, 2, 3, 4, 0.5], "4": [1, 2, 3, 4, 1]}}),
    )
    four = [[1, 2, 3, 4]] * 4
    by_protocol = {"ope": {"P01": four}, "mse": {"P01": {"0": four}}, "hoi": {"P01": {"0": four}}}
    put("trek150_predictions", "a.json", json.dumps({"results": by_protocol}))
    put("vq2d_predictions", "challenge.json", json.dumps(challenge))
    small = Path(__file__).parents[1] / "evaluation" / "fixtures" / "vq3d_small.json"
    put("vq3d_predictions", "a.json", small.read_bytes())


if __name__ == "__main__":
    for write in (images, videos, words, answers, stores, poses, annotations, predictions):
        write()
