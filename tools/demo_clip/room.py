"""The room: its walls, furniture and light, as Blender objects. Metres; x east, y north, z up.

The furniture is CC0, from Debian's package sweethome3d-furniture; the rest is made here.
"""

from __future__ import annotations

import math
import re
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import bmesh
import bpy
import numpy as np
import textures
from layout import DEPTH, HEIGHT, PLACES, TARGET, WIDTH, Place
from mathutils import Matrix

LIBRARY = Path("/usr/share/sweethome3d/furniture/BlendSwap-CC-0.sh3f")
LONGEST_EDGE_M = 0.07  # light is stored at corners, so no edge may be longer
MOST_FACES = 6000  # per model: more would only slow the bake
Colour = tuple[float, float, float]


def build() -> tuple[bpy.types.Object, bpy.types.Object]:
    """The room with everything in it as one mesh, and the target as another."""
    rng = np.random.default_rng(7)
    furniture = [furnish(place) for place in PLACES]
    target = next(o for o, place in zip(furniture, PLACES, strict=True) if place.model == TARGET)
    statics = (
        [o for o in furniture if o is not target]
        + list(shell(rng))
        + list(shelves(rng))
        + list(pictures(rng))
    )
    for thing in [*statics, target]:
        refine(thing)
    bpy.ops.object.select_all(action="DESELECT")
    for thing in statics:
        thing.select_set(True)
    bpy.context.view_layer.objects.active = statics[0]
    bpy.ops.object.join()
    return statics[0], target


def shell(rng: np.random.Generator) -> Iterator[bpy.types.Object]:
    """Floor, ceiling, walls, rug, window and door."""
    w, d, h = WIDTH, DEPTH, HEIGHT
    yield panel("floor", (0, 0, 0), (w, 0, 0), (0, d, 0), textures.planks((1560, 1920), rng))
    yield panel(
        "ceiling", (0, d, h), (w, 0, 0), (0, -d, 0), textures.plaster((520, 640), rng, (0.88, 0.87, 0.84))
    )
    yield panel(
        "north", (0, d, 0), (w, 0, 0), (0, 0, h), textures.plaster((780, 1920), rng, (0.80, 0.80, 0.72))
    )
    yield panel(
        "south", (w, 0, 0), (-w, 0, 0), (0, 0, h), textures.plaster((780, 1920), rng, (0.52, 0.62, 0.64))
    )
    yield panel(
        "west", (0, 0, 0), (0, d, 0), (0, 0, h), textures.plaster((780, 1560), rng, (0.86, 0.80, 0.68))
    )
    yield panel("east", (w, d, 0), (0, -d, 0), (0, 0, h), textures.bricks((780, 1560), rng))
    yield panel("rug", (0.9, 0.95, 0.012), (2.7, 0, 0), (0, 1.75, 0), textures.rug((448, 704), rng))
    yield panel("mat", (5.2, 0.5, 0.01), (0.8, 0, 0), (0, 1.1, 0), textures.rug((320, 224), rng))
    yield panel("garden", (0.03, 1.9, 0.95), (0, 1.5, 0), (0, 0, 1.25), textures.garden(rng), glow=2.2)
    white = material("frame", (0.8, 0.8, 0.78))
    for y in (1.87, 2.64, 3.40):
        yield block("frame", (0.04, y, 1.575), (0.08, 0.07, 1.32), white)
    for z in (0.92, 2.22):
        yield block("frame", (0.05, 2.635, z), (0.12, 1.7, 0.07), white)
    skirting = material("skirting", (0.62, 0.57, 0.48))
    yield block("skirting", (w / 2, 0.01, 0.05), (w, 0.02, 0.1), skirting)
    yield block("skirting", (0.01, d / 2, 0.05), (0.02, d, 0.1), skirting)
    yield block("skirting", (w / 2, d - 0.01, 0.05), (w, 0.02, 0.1), skirting)
    for x, z, size in [
        (5.12, 1.05, (0.08, 0.07, 2.1)),
        (6.08, 1.05, (0.08, 0.07, 2.1)),
        (5.6, 2.1, (1.04, 0.07, 0.08)),
    ]:
        yield block("door frame", (x, 0.03, z), size, white)
    oak = picture_material("door", textures.planks((400, 900), rng, width=100).transpose(1, 0, 2))
    yield block("door", (5.6, 0.02, 1.03), (0.88, 0.05, 2.06), oak)
    yield block("handle", (5.25, 0.08, 1.02), (0.12, 0.03, 0.03), material("handle", (0.5, 0.45, 0.35)))


def shelves(rng: np.random.Generator) -> Iterator[bpy.types.Object]:
    """A bookcase on the east wall, full of books."""
    wood = picture_material("shelf", textures.planks((512, 512), rng, width=512))
    sheet = picture_material("spines", textures.spines(rng))
    south, north, x = 3.35, 4.45, WIDTH - 0.15
    for y in (south, (south + north) / 2, north):
        yield block("side", (x, y, 0.95), (0.3, 0.03, 1.9), wood)
    for level in range(6):
        z = 0.06 + 0.365 * level
        yield block("board", (x, (south + north) / 2, z), (0.3, north - south, 0.03), wood)
        for left in (south, (south + north) / 2):
            y = left + 0.025
            while level < 5 and y < left + 0.5:
                thick, tall = rng.uniform(0.018, 0.05), rng.uniform(0.2, 0.31)
                if rng.random() < 0.9:
                    book = block("book", (x, y + thick / 2, z + 0.015 + tall / 2), (0.2, thick, tall), sheet)
                    choose_spine(book, rng)
                    yield book
                y += thick + 0.002


def pictures(rng: np.random.Generator) -> Iterator[bpy.types.Object]:
    """Framed paintings on the walls."""
    black = material("moulding", (0.06, 0.05, 0.05))
    south = [(1.2, 1.35, 0.8, 0.6), (2.4, 1.4, 0.7, 0.9), (3.5, 1.3, 0.6, 0.45), (4.45, 1.5, 0.5, 0.65)]
    for x, z, width, height in south:
        yield block("moulding", (x, 0.012, z + height / 2), (width + 0.06, 0.024, height + 0.06), black)
        corner = (x + width / 2, 0.027, z)
        yield panel("painting", corner, (-width, 0, 0), (0, 0, height), textures.painting(rng))
    for y, z, width, height in [(1.0, 1.35, 0.6, 0.8), (4.25, 1.3, 0.5, 0.6)]:
        yield block("moulding", (0.012, y, z + height / 2), (0.024, width + 0.06, height + 0.06), black)
        corner = (0.027, y - width / 2, z)
        yield panel("painting", corner, (0, width, 0), (0, 0, height), textures.painting(rng))
    yield block("moulding", (5.3, DEPTH - 0.012, 1.6), (0.86, 0.024, 0.66), black)
    yield panel("painting", (4.9, DEPTH - 0.027, 1.3), (0.8, 0, 0), (0, 0, 0.6), textures.painting(rng))


def lights(*, evening: bool = False) -> None:
    """Daylight from the window and a lamp; in the evening only lamps, from another side."""
    if evening:
        area((3.2, 2.4, 2.4), (0, 0, 0), (0.5, 0.5), 45, (1.0, 0.72, 0.45))
        area((4.6, 1.6, 1.9), (0, math.radians(50), 0), (0.3, 0.3), 30, (1.0, 0.8, 0.6))
        return
    area((0.15, 2.65, 1.6), (0, math.radians(-90), 0), (1.25, 1.5), 95, (0.86, 0.93, 1.0))
    area((3.2, 2.6, 2.55), (0, 0, 0), (4.5, 3.5), 110, (1.0, 0.93, 0.84))
    area((6.0, 1.0, 2.3), (0, math.radians(35), 0), (0.4, 0.4), 14, (1.0, 0.85, 0.65))


def area(at: Colour, turn: Colour, size: tuple[float, float], watts: float, colour: Colour) -> None:
    lamp = bpy.data.lights.new("lamp", "AREA")
    lamp.shape, lamp.size, lamp.size_y, lamp.energy, lamp.color = "RECTANGLE", *size, watts, colour
    thing = bpy.data.objects.new("lamp", lamp)
    thing.location, thing.rotation_euler, thing.visible_camera = at, turn, False
    bpy.context.scene.collection.objects.link(thing)


def furnish(place: Place) -> bpy.types.Object:
    """Load a model, give it the size its catalogue states, and put it in its place."""
    size, turned = catalogue()[place.model]
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(LIBRARY) as library:
        inside = f"blendswap-cc-0/{place.model}/"
        library.extractall(folder, [name for name in library.namelist() if name.startswith(inside)])
        path = Path(folder, inside, f"{place.model}.obj")
        bpy.ops.import_scene.obj(filepath=str(path), axis_forward="Y", axis_up="Z")  # wm.obj_import crashes
        parts = list(bpy.context.selected_objects)
        for image in bpy.data.images:
            if image.source == "FILE" and not image.packed_file and image.filepath:
                image.pack()
    bpy.context.view_layer.objects.active = parts[0]
    if len(parts) > 1:
        bpy.ops.object.join()
    thing = parts[0]
    if len(thing.data.polygons) > MOST_FACES:
        fewer = thing.modifiers.new("fewer", "DECIMATE")
        fewer.ratio = MOST_FACES / len(thing.data.polygons)
        bpy.ops.object.modifier_apply(modifier="fewer")
    for slot in thing.material_slots:
        slot.material = from_import(slot.material, place.tint)
    mesh = thing.data
    up = Matrix(((1, 0, 0), (0, 0, -1), (0, 1, 0)))  # the files have y up and the front at +z
    mesh.transform((up @ Matrix(turned)).to_4x4())
    points = np.array([v.co for v in mesh.vertices])
    low, high = points.min(0), points.max(0)
    middle = (low + high) / 2
    fit = np.array(size) / (high - low) * place.scale
    mesh.transform(Matrix.Translation((-middle[0], -middle[1], -low[2])))
    mesh.transform(Matrix.Diagonal((*fit, 1)))
    mesh.transform(Matrix.Rotation(math.radians(place.degrees + 180), 4, "Z"))
    mesh.transform(Matrix.Translation((place.x, place.y, place.z)))
    thing.name = place.model
    return thing


def catalogue() -> dict[str, tuple[Colour, list[list[float]]]]:
    """Of each model of the library: width, depth and height in metres, and how its file is turned."""
    with zipfile.ZipFile(LIBRARY) as library:
        text = library.read("PluginFurnitureCatalog.properties").decode("latin-1")
    entries: dict[str, dict[str, str]] = {}
    for key, number, value in re.findall(r"^(\w+)#(\d+)=(.*?)\r?$", text, re.MULTILINE):
        entries.setdefault(number, {})[key] = value
    found = {}
    for entry in entries.values():
        size = tuple(float(entry[key]) / 100 for key in ("width", "depth", "height"))
        turned = [float(v) for v in entry.get("modelRotation", "1 0 0 0 1 0 0 0 1").split()]
        found[Path(entry["model"]).stem] = (size, [turned[0:3], turned[3:6], turned[6:9]])
    return found


def refine(thing: bpy.types.Object) -> None:
    """Drop window panes, turn faces outwards, and cut edges until none is too long."""
    mesh = thing.data
    panes = {i for i, m in enumerate(mesh.materials) if m and m.get("pane")}
    work = bmesh.new()
    work.from_mesh(mesh)
    bmesh.ops.delete(work, geom=[f for f in work.faces if f.material_index in panes], context="FACES")
    bmesh.ops.remove_doubles(work, verts=work.verts, dist=1e-5)
    if not thing.get("panel"):
        bmesh.ops.recalc_face_normals(work, faces=work.faces)
    for _ in range(8):
        long = [edge for edge in work.edges if edge.calc_length() > LONGEST_EDGE_M]
        if not long:
            break
        bmesh.ops.subdivide_edges(work, edges=long, cuts=1, use_grid_fill=True)
    bmesh.ops.triangulate(work, faces=work.faces)
    work.to_mesh(mesh)
    work.free()
    mesh.use_auto_smooth, mesh.auto_smooth_angle = True, math.radians(35)
    mesh.polygons.foreach_set("use_smooth", np.ones(len(mesh.polygons), bool))


def panel(
    name: str, corner: Colour, right: Colour, up: Colour, picture: textures.Picture, *, glow: float = 0
) -> bpy.types.Object:
    """A rectangle that shows an image, from its lower left corner; seen from where `right` is right."""
    a, b, c = (np.array(v, float) for v in (corner, right, up))
    thing = _mesh(name, [a, a + b, a + b + c, a + c], [(0, 1, 2, 3)], picture_material(name, picture, glow))
    thing["panel"] = True
    return thing


def block(name: str, middle: Colour, size: Colour, paint: bpy.types.Material) -> bpy.types.Object:
    corners = [
        np.array(middle) + np.array(size) * (np.array([i & 1, i >> 1 & 1, i >> 2]) - 0.5) for i in range(8)
    ]
    faces = [(0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (3, 2, 6, 7), (1, 3, 7, 5), (2, 0, 4, 6)]
    return _mesh(name, corners, faces, paint)


def _mesh(name: str, corners: list[np.ndarray], faces: list[tuple[int, ...]], paint: bpy.types.Material):
    mesh = bpy.data.meshes.new(name)
    mesh.from_pydata([tuple(c) for c in corners], [], faces)
    layer = mesh.uv_layers.new(name="UVMap")
    layer.data.foreach_set("uv", [v for _ in faces for v in (0, 0, 1, 0, 1, 1, 0, 1)])
    mesh.materials.append(paint)
    thing = bpy.data.objects.new(name, mesh)
    bpy.context.scene.collection.objects.link(thing)
    return thing


def choose_spine(book: bpy.types.Object, rng: np.random.Generator) -> None:
    """Show one cell of the sheet of spines, upright on the side that faces the room."""
    cell = rng.integers(0, 8, 2)
    uv = book.data.uv_layers[0].data
    points = [book.data.vertices[loop.vertex_index].co for loop in book.data.loops]
    low, high = np.min(points, 0), np.max(points, 0)
    for loop, point in zip(uv, points, strict=True):
        share = (np.array(point) - low) / (high - low)
        loop.uv = ((cell[0] + 0.02 + 0.96 * share[1]) / 8, (cell[1] + 0.02 + 0.96 * share[2]) / 8)


def picture_material(name: str, picture: textures.Picture, glow: float = 0) -> bpy.types.Material:
    image = bpy.data.images.new(name, picture.shape[1], picture.shape[0])
    pixels = np.ones((*picture.shape[:2], 4), np.float32)
    pixels[..., :3] = picture[::-1]
    image.pixels.foreach_set(pixels.ravel())
    image.pack()
    return material(name, (1, 1, 1), image, glow=glow)


def from_import(imported: bpy.types.Material, tint: Colour) -> bpy.types.Material:
    """The same colour or image as an imported material, in our own shader."""
    shader = next(n for n in imported.node_tree.nodes if n.type == "BSDF_PRINCIPLED")
    links = shader.inputs["Base Color"].links
    image = links[0].from_node.image if links else None
    # The files state colours as they look on a screen.
    colour = (1.0, 1.0, 1.0) if image else np.power(shader.inputs["Base Color"].default_value[:3], 2.2)
    paint = material(imported.name, tuple(np.clip(np.multiply(colour, tint), 0.015, 0.8)), image)
    paint["pane"] = shader.inputs["Alpha"].default_value < 0.9
    return paint


def material(
    name: str, colour: Colour, image: bpy.types.Image | None = None, *, glow: float = 0
) -> bpy.types.Material:
    """A matt material; what it looks like is also kept as properties, for the export."""
    paint = bpy.data.materials.new(name)
    paint.use_nodes = True
    tree = paint.node_tree
    tree.nodes.clear()
    output = tree.nodes.new("ShaderNodeOutputMaterial")
    shader = tree.nodes.new("ShaderNodeEmission" if glow else "ShaderNodeBsdfDiffuse")
    tree.links.new(shader.outputs[0], output.inputs[0])
    if image:
        source = tree.nodes.new("ShaderNodeTexImage")
        source.image = image
        tree.links.new(source.outputs["Color"], shader.inputs["Color"])
        paint["image"] = image.name
    shader.inputs["Color"].default_value = (*colour, 1)
    if glow:
        shader.inputs["Strength"].default_value = glow
    paint["colour"], paint["glow"] = colour, glow
    return paint
