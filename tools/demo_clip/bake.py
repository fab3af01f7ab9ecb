"""Builds the room, bakes its light and writes all of it as arrays. Runs inside Blender.

`blender -b -P bake.py -- --room room.npz` or `-- --query query.png`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import bpy
import numpy as np
from mathutils import Matrix

sys.path.insert(0, str(Path(__file__).parent))
import room
import walk

BLENDER_FROM_CAM = np.diag([1.0, -1.0, -1.0])  # Blender's cameras look along -z with y up
QUERY_PX, QUERY_FOCAL_PX = 360, 540


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--room", type=Path, help="file for the room as arrays")
    parser.add_argument("--query", type=Path, help="file for a still of the target in other light")
    parser.add_argument("--samples", type=int, default=16, help="paths per corner or pixel")
    options = parser.parse_args(sys.argv[sys.argv.index("--") + 1 :])
    bpy.ops.wm.read_factory_settings(use_empty=True)
    started = time.time()
    scene = bpy.context.scene
    statics, target = room.build()
    print(f"built in {time.time() - started:.0f} s, {len(statics.data.loops)} corners", flush=True)
    scene.render.engine = "CYCLES"
    scene.cycles.use_adaptive_sampling = scene.cycles.use_denoising = False
    scene.cycles.max_bounces = 3
    scene.cycles.samples = options.samples
    room.lights(evening=options.query is not None)
    if options.query:
        render_query(scene, target, options.query)
    if options.room:
        parts = [export(thing, bake(thing)) for thing in (statics, target)]
        print(f"baked after {time.time() - started:.0f} s", flush=True)
        write(options.room, parts)


def bake(thing: bpy.types.Object) -> np.ndarray:
    """Path trace the light that falls on each corner of the mesh, (N, 3)."""
    mesh = thing.data
    mesh.color_attributes.new("light", "FLOAT_COLOR", "CORNER")
    mesh.color_attributes.active_color = mesh.color_attributes["light"]
    bpy.ops.object.select_all(action="DESELECT")
    thing.select_set(True)
    bpy.context.view_layer.objects.active = thing
    bpy.ops.object.bake(type="DIFFUSE", pass_filter={"DIRECT", "INDIRECT"}, target="VERTEX_COLORS")
    light = np.empty((len(mesh.loops), 4), np.float32)
    mesh.color_attributes["light"].data.foreach_get("color", light.ravel())
    return light[:, :3]


def export(thing: bpy.types.Object, light: np.ndarray) -> dict[str, np.ndarray]:
    """Per corner: position, normal, UV, light; per triangle: its material."""
    mesh = thing.data
    mesh.calc_normals_split()
    count = len(mesh.loops)
    vertex, normal = np.empty(count, np.int32), np.empty((count, 3), np.float32)
    uv, paint = np.empty((count, 2), np.float32), np.empty(len(mesh.polygons), np.int32)
    position = np.empty((len(mesh.vertices), 3), np.float32)
    mesh.loops.foreach_get("vertex_index", vertex)
    mesh.loops.foreach_get("normal", normal.ravel())
    mesh.uv_layers[0].data.foreach_get("uv", uv.ravel())
    mesh.polygons.foreach_get("material_index", paint)
    mesh.vertices.foreach_get("co", position.ravel())
    names = np.array([m.name for m in mesh.materials])
    return {"position": position[vertex], "normal": normal, "uv": uv, "light": light, "paint": names[paint]}


def write(path: Path, parts: list[dict[str, np.ndarray]]) -> None:
    """All triangles, the target's last, their colours, and the images they show."""
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    names, arrays["paint"] = np.unique(arrays["paint"], return_inverse=True)
    paints = [bpy.data.materials[name] for name in names]
    shown = sorted({m["image"] for m in paints if "image" in m})
    for number, name in enumerate(shown):
        image = bpy.data.images[name]
        pixels = np.empty(image.size[0] * image.size[1] * 4, np.float32)
        image.pixels.foreach_get(pixels)
        arrays[f"image{number}"] = np.round(
            pixels.reshape(image.size[1], image.size[0], 4)[..., :3] * 255
        ).astype(np.uint8)
    np.savez(
        path,
        **arrays,
        colour=np.array([list(m["colour"]) for m in paints]),
        glow=np.array([m["glow"] for m in paints]),
        image=np.array([shown.index(m["image"]) if "image" in m else -1 for m in paints]),
        target_triangles=len(parts[1]["paint"]),
    )


def render_query(scene: bpy.types.Scene, target: bpy.types.Object, path: Path) -> None:
    """A still of the target from another side, in the evening, fully path traced."""
    points = np.array([v.co for v in target.data.vertices])
    middle = (points.min(0) + points.max(0)) / 2
    eye = middle + np.array([-0.35, 0.85, 0.25])
    ahead = middle - eye
    yaw, pitch = np.arctan2(ahead[1], ahead[0]), np.arctan2(ahead[2], np.hypot(ahead[0], ahead[1]))
    pose = walk.look(eye, yaw, pitch, np.array(0.05))
    world = np.eye(4)
    world[:3, :3] = pose[:, :3].T @ BLENDER_FROM_CAM
    world[:3, 3] = eye
    camera = bpy.data.cameras.new("camera")
    camera.sensor_width, camera.lens = QUERY_PX, QUERY_FOCAL_PX
    scene.camera = bpy.data.objects.new("camera", camera)
    scene.camera.matrix_world = Matrix(world)
    scene.collection.objects.link(scene.camera)
    scene.render.resolution_x = scene.render.resolution_y = QUERY_PX
    scene.view_settings.view_transform, scene.view_settings.look = "Filmic", "Medium High Contrast"
    scene.render.filepath = str(path)
    bpy.ops.render.render(write_still=True)
    camera_points = points @ pose[:, :3].T + pose[:, 3]
    pixels = camera_points[:, :2] / camera_points[:, 2:] * QUERY_FOCAL_PX + QUERY_PX / 2
    box = [round(float(v), 1) for v in (*pixels.min(0), *pixels.max(0))]
    path.with_suffix(".json").write_text(json.dumps({"box": box}))


main()
