"""Draws the baked room with OpenGL: colour times light, blurred by the head's own motion; depth and masks."""

from __future__ import annotations

from pathlib import Path

import moderngl
import numpy as np
import walk
from numpy.typing import NDArray
from scipy.spatial import cKDTree

SUBFRAMES = 5  # images averaged into one frame
SHUTTER_S = 0.3 / walk.FPS
NEAR_M, FAR_M = 0.05, 20.0
SRGB8_ALPHA8 = 0x8C43
SMOOTHING_STEPS = 4

VERTEX = """
#version 330
uniform mat4 clip_from_world;
in vec3 position; in vec2 uv; in vec3 light;
out vec3 world; out vec2 at; out vec3 lit;
void main() {
    world = position; at = uv; lit = light;
    gl_Position = clip_from_world * vec4(position, 1);
}
"""
COLOUR = """
#version 330
uniform vec3 colour; uniform float glow; uniform bool shows; uniform sampler2D picture;
uniform float exposure;
in vec3 world; in vec2 at; in vec3 lit;
out vec4 pixel;
float hash(vec3 p) { p = fract(p * .1031); p += dot(p, p.zyx + 31.32); return fract((p.x + p.y) * p.z); }
float noise(vec3 p) {
    vec3 i = floor(p), f = fract(p); f = f * f * (3. - 2. * f);
    vec4 low = vec4(hash(i), hash(i + vec3(1,0,0)), hash(i + vec3(0,1,0)), hash(i + vec3(1,1,0)));
    i.z += 1.;
    vec4 high = vec4(hash(i), hash(i + vec3(1,0,0)), hash(i + vec3(0,1,0)), hash(i + vec3(1,1,0)));
    vec4 m = mix(low, high, f.z);
    return mix(mix(m.x, m.y, f.x), mix(m.z, m.w, f.x), f.y);
}
vec3 film(vec3 x) { return clamp(x * (2.51 * x + .03) / (x * (2.43 * x + .59) + .14), 0., 1.); }
void main() {
    vec3 base = colour;
    if (shows) base *= texture(picture, at, -1.).rgb;
    else base *= .72 + .36 * noise(world * 40.) + .2 * noise(world * 110.);
    vec3 radiance = base * (glow > 0. ? vec3(glow) : lit) * exposure;
    pixel = vec4(pow(film(radiance), vec3(1. / 2.2)), 1);
}
"""
TRUTH = """
#version 330
uniform float thing; uniform vec4 depth_row;
in vec3 world;
out vec2 pixel;
void main() { pixel = vec2(dot(depth_row, vec4(world, 1)), thing); }
"""


class Renderer:
    """Holds the room on the graphics side. Needs only a software OpenGL (EGL, llvmpipe)."""

    def __init__(self, room: Path) -> None:
        self._context = moderngl.create_context(standalone=True, backend="egl")
        data = np.load(room)
        self._paints = list(zip(data["colour"], data["glow"], data["image"], strict=True))
        self._pictures = {n: self._picture(data[f"image{n}"]) for n in set(data["image"].tolist()) if n >= 0}
        self._draws = []
        self._colour = self._context.program(vertex_shader=VERTEX, fragment_shader=COLOUR)
        self._truth = self._context.program(vertex_shader=VERTEX, fragment_shader=TRUTH)
        light = smooth_light(data["position"], data["normal"], data["light"])
        corners = np.column_stack([data["position"], data["uv"], light]).astype("f4").reshape(-1, 3, 8)
        is_target = np.arange(len(corners)) >= len(corners) - int(data["target_triangles"])
        seen = corners[is_target][..., :3].reshape(-1, 3).astype(float)
        self.target_bounds = seen.min(0), seen.max(0)
        for target in (False, True):
            for paint in np.unique(data["paint"][is_target == target]):
                chosen = corners[(is_target == target) & (data["paint"] == paint)].reshape(-1, 8)
                self._add(chosen, int(paint), target)

    def frame(self, time_s: float, exposure: float = 1.15) -> NDArray[np.uint8]:
        """(H, W, 3) RGB: several moments of the open shutter, each shifted by a part of a pixel."""
        size = (walk.WIDTH, walk.HEIGHT)
        buffer = self._context.framebuffer(
            self._context.renderbuffer(size, 4), self._context.depth_renderbuffer(size)
        )
        moments = time_s + SHUTTER_S * ((np.arange(SUBFRAMES) + 0.5) / SUBFRAMES - 0.5)
        total = np.zeros((walk.HEIGHT, walk.WIDTH, 3))
        for k, pose in enumerate(walk.cam_from_world(moments)):
            shift = np.array([(k + 0.5) / SUBFRAMES, (k * 2 % SUBFRAMES + 0.5) / SUBFRAMES]) - 0.5
            buffer.use()
            buffer.clear(0, 0, 0, 1)
            self._draw(self._colour, clip_from_world(pose, size, shift), exposure=exposure)
            total += np.frombuffer(buffer.read(components=3), np.uint8).reshape(walk.HEIGHT, walk.WIDTH, 3)
        buffer.release()
        return np.round(total / SUBFRAMES)[::-1].astype(np.uint8)

    def depth_and_mask(self, pose: NDArray[np.float64], *, alone: bool = False, margin: int = 0):
        """Depth along the optical axis in metres (H, W) and the target's pixels (H, W)."""
        size = (walk.WIDTH + 2 * margin, walk.HEIGHT + 2 * margin)
        texture = self._context.texture(size, 2, dtype="f4")
        buffer = self._context.framebuffer(texture, self._context.depth_renderbuffer(size))
        buffer.use()
        buffer.clear()
        self._draw(self._truth, clip_from_world(pose, size), alone=alone, depth_row=tuple(pose[2]))
        values = np.frombuffer(buffer.read(components=2, dtype="f4"), np.float32).reshape(size[1], size[0], 2)
        buffer.release()
        texture.release()
        return values[::-1, :, 0], values[::-1, :, 1] > 0.5

    def _draw(
        self, program: moderngl.Program, clip: NDArray[np.float64], *, alone: bool = False, **uniforms
    ) -> None:
        self._context.enable(moderngl.DEPTH_TEST)
        program["clip_from_world"].write(clip.T.astype("f4").tobytes())
        for name, value in uniforms.items():
            program[name].value = value
        for colour_array, truth_array, paint, target, corners in self._draws:
            if (alone and not target) or outside(clip, corners):
                continue
            colour, glow, image = self._paints[paint]
            if program is self._truth:
                program["thing"].value = float(target)
                truth_array.render()
                continue
            program["colour"].value, program["glow"].value = tuple(colour), float(glow)
            program["shows"].value = bool(image >= 0)
            if image >= 0:
                self._pictures[int(image)].use()
            colour_array.render()

    def _add(self, corners: NDArray[np.float32], paint: int, target: bool) -> None:
        unique, index = np.unique(
            corners.view(np.dtype((np.void, corners[0].nbytes))).ravel(), return_inverse=True
        )
        vertices = self._context.buffer(unique.tobytes())
        indices = self._context.buffer(index.astype("i4").tobytes())
        colour = self._context.vertex_array(
            self._colour, [(vertices, "3f 2f 3f", "position", "uv", "light")], indices
        )
        truth = self._context.vertex_array(self._truth, [(vertices, "3f 20x", "position")], indices)
        low, high = corners[:, :3].min(0), corners[:, :3].max(0)
        bounds = np.array([np.where([i & 1, i & 2, i & 4], high, low) for i in range(8)])
        self._draws.append((colour, truth, paint, target, bounds))

    def _picture(self, pixels: NDArray[np.uint8]) -> moderngl.Texture:
        rgba = np.concatenate([pixels, np.full_like(pixels[..., :1], 255)], -1)
        texture = self._context.texture(rgba.shape[1::-1], 4, rgba.tobytes(), internal_format=SRGB8_ALPHA8)
        texture.build_mipmaps()
        return texture


def clip_from_world(
    pose: NDArray[np.float64], size: tuple[int, int], shift=(0.0, 0.0)
) -> NDArray[np.float64]:
    """OpenGL's matrix for a pinhole camera whose axis meets the middle of an image of this size."""
    projection = np.zeros((4, 4))
    projection[0, 0] = 2 * walk.FOCAL_PX / size[0]
    projection[1, 1] = -2 * walk.FOCAL_PX / size[1]
    projection[:2, 2] = np.array([2, -2]) * shift / np.array(size)
    projection[2, 2:] = (FAR_M + NEAR_M) / (FAR_M - NEAR_M), -2 * FAR_M * NEAR_M / (FAR_M - NEAR_M)
    projection[3, 2] = 1
    return projection @ np.vstack([pose, [0, 0, 0, 1]])


def outside(clip: NDArray[np.float64], points: NDArray[np.float64]) -> bool:
    """Whether all points (N, 3) lie beyond one side of the view."""
    x, y, _, w = clip @ np.column_stack([points, np.ones(len(points))]).T
    return any(bool(side.all()) for side in (x < -w, x > w, y < -w, y > w))


def smooth_light(position: NDArray, normal: NDArray, light: NDArray) -> NDArray[np.float64]:
    """Corners at one point with one normal share their light, and neighbours even out what noise is left.

    A face turned inwards got no light at all; it takes that of the nearest corner that has some.
    """
    brightness = light.sum(1)
    dark = brightness < 0.02 * np.median(brightness)
    light = light.copy()
    light[dark] = light[~dark][cKDTree(position[~dark]).query(position[dark])[1]]
    key = np.column_stack([np.round(position * 5000), np.round(normal * 4)]).astype(np.int32)
    packed = np.ascontiguousarray(key).view(np.dtype((np.void, key[0].nbytes))).ravel()
    _, group = np.unique(packed, return_inverse=True)
    size = np.bincount(group)
    value = np.column_stack([np.bincount(group, light[:, c]) / size for c in range(3)])
    triangle = group.reshape(-1, 3)
    for _ in range(SMOOTHING_STEPS):
        mean = value[triangle].mean(1)
        value = np.column_stack([np.bincount(group, np.repeat(mean[:, c], 3)) / size for c in range(3)])
    return value[group]
