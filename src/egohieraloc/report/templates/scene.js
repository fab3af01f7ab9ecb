// The 3D view of report and page, what is said beside it, and its legend.
import { make } from "./tools.js";

export function sceneWords({ words, posed_frames: posed, num_frames: all }) {
  const share = all ? ` ${posed} of ${all} frames have a pose.` : "";
  return `${words[0].toUpperCase()}${words.slice(1).replace(/\.$/, "")}.${share}`;
}
export const doubtItems = ({ doubts }) => doubts.map((doubt) => make("li", {}, `Uncertain: ${doubt}.`));
export function sceneLegend(scene) {
  const entries = [["var(--quiet)", "your path"]];
  if (scene.views.length) entries.push(["linear-gradient(90deg,#6366f1,#f59e0b)", "views, by weight"]);
  if (scene.place) entries.push(["var(--accent)", "the object; the rings hold it in 95 of 100 cases"], ["var(--accent)", "the camera at the query time"]);
  entries.push(["var(--mark)", "the camera at the moment shown"]);
  if (scene.map_points.length) entries.push(["color-mix(in srgb, var(--quiet) 40%, transparent)", "points of the map"]);
  if (scene.true_point) entries.push(["var(--mark)", "where it truly is"]);
  return entries;
}
// The colour of each object of a map, as in its PLY file.
const OBJECTS = ["#15803d", "#b45309", "#be185d", "#0369a1", "#6d28d9", "#a16207"];
export const objectColour = (rank) => OBJECTS[rank % OBJECTS.length];
// The 3D view: a canvas one can turn. z is up; returns what the page needs to point at a frame.
export function startScene(canvas, scene) {
  const { place } = scene;
  const pen = canvas.getContext("2d");
  const objects = scene.objects ?? []; // of a map of objects
  const everything = [...scene.path, ...scene.views.map((view) => view.point), ...(place ? [place.point] : []), ...objects.map((each) => each.point)];
  const middle = [0, 1, 2].map((axis) => {
    const values = everything.map((point) => point[axis]);
    return (Math.min(...values) + Math.max(...values)) / 2;
  });
  const reach = Math.max(...everything.map((point) => Math.hypot(...point.map((value, axis) => value - middle[axis]))), 1e-6);
  const floor = Math.min(...everything.map((point) => point[2])) - 0.15 * reach;
  const largest = Math.max(...scene.views.map((view) => view.weight), 1e-9);
  const state = { turn: -0.6, tilt: 0.7, distance: 2.5 * reach, frame: null };
  let width = 0, height = 0, waiting = false;

  function project(point) {
    const [x, y, z] = point.map((value, axis) => value - middle[axis]);
    const along = x * Math.cos(state.turn) + y * Math.sin(state.turn);
    const away = -x * Math.sin(state.turn) + y * Math.cos(state.turn);
    const ahead = away * Math.cos(state.tilt) - z * Math.sin(state.tilt) + state.distance;
    const up = away * Math.sin(state.tilt) + z * Math.cos(state.tilt);
    if (ahead < 0.02 * reach) return null;
    const scale = 1.35 * Math.min(width, height) / ahead;
    return [width / 2 + along * scale, height / 2 - up * scale, scale];
  }
  function line(points, style, thickness, dash = []) {
    pen.beginPath();
    let open = false;
    for (const point of points) {
      const at = project(point);
      if (at) open ? pen.lineTo(at[0], at[1]) : pen.moveTo(at[0], at[1]);
      open = Boolean(at);
    }
    pen.strokeStyle = style;
    pen.lineWidth = thickness;
    pen.setLineDash(dash);
    pen.stroke();
    pen.setLineDash([]);
  }
  function dot(point, style, radius, edge) {
    const at = project(point);
    if (!at) return;
    pen.beginPath();
    pen.arc(at[0], at[1], radius, 0, 2 * Math.PI);
    pen.fillStyle = style;
    pen.fill();
    if (edge) {
      pen.strokeStyle = edge;
      pen.lineWidth = 1.5;
      pen.stroke();
    }
  }
  const add = (a, b, scale = 1) => a.map((value, axis) => value + scale * b[axis]);
  function byWeight(weight, alpha) {
    const share = Math.sqrt(weight / largest);
    const mix = (low, high) => Math.round(low + (high - low) * share);
    return `rgba(${mix(99, 245)},${mix(102, 158)},${mix(241, 11)},${alpha})`;
  }
  function camera(index, style, size) {
    const at = scene.path[index], forward = scene.forward[index];
    const length = Math.hypot(forward[0], forward[1]) || 1;
    const right = [forward[1] / length, -forward[0] / length, 0];
    const up = [right[1] * forward[2] - right[2] * forward[1], right[2] * forward[0] - right[0] * forward[2], right[0] * forward[1] - right[1] * forward[0]];
    const corner = (a, b) => add(add(add(at, forward, size), right, 0.62 * a * size), up, 0.46 * b * size);
    const [nw, ne, se, sw] = [corner(-1, 1), corner(1, 1), corner(1, -1), corner(-1, -1)];
    line([nw, ne, se, sw, nw, at, ne], style, 1.6);
    line([se, at, sw], style, 1.6);
  }
  function rings(at, axes, style) {
    for (const [one, two] of [[0, 1], [1, 2], [0, 2]]) ring(at, axes[one], axes[two], style);
  }
  function ring(at, a, b, style) {
    const points = Array.from({ length: 49 }, (_, i) => {
      const angle = 2 * Math.PI * i / 48;
      return add(add(at, a, Math.cos(angle)), b, Math.sin(angle));
    });
    line(points, style, 1.3);
  }
  function ground(style) {
    const step = 10 ** Math.floor(Math.log10(reach)) * (reach / 10 ** Math.floor(Math.log10(reach)) > 4 ? 2 : 1);
    const half = Math.ceil(1.15 * reach / step) * step;
    const start = [0, 1].map((axis) => Math.round(middle[axis] / step) * step);
    for (let i = -half; i <= half + step / 2; i += step) {
      line([[start[0] + i, start[1] - half, floor], [start[0] + i, start[1] + half, floor]], style, 1);
      line([[start[0] - half, start[1] + i, floor], [start[0] + half, start[1] + i, floor]], style, 1);
    }
    return step;
  }

  function paint() {
    waiting = false;
    const colours = getComputedStyle(document.documentElement);
    const colour = (name) => colours.getPropertyValue(`--${name}`).trim();
    const density = window.devicePixelRatio || 1;
    width = canvas.clientWidth;
    height = canvas.clientHeight;
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(height * density);
    pen.setTransform(density, 0, 0, density, 0, 0);
    pen.lineJoin = pen.lineCap = "round";
    const step = ground(colour("line"));
    for (const point of scene.map_points) dot(point, colour("quiet") + "66", 0.9);
    line(scene.path, colour("quiet"), 2);
    dot(scene.path[0], colour("quiet"), 3);
    for (const view of scene.views) {
      if (view.camera !== null) line([scene.path[view.camera], view.point], byWeight(view.weight, 0.45), 1.2);
    }
    for (const view of scene.views) dot(view.point, byWeight(view.weight, 0.95), 3.2);
    const here = place && place.query_camera !== null ? scene.path[place.query_camera] : null;
    if (place) {
      line([place.point, [place.point[0], place.point[1], floor]], colour("accent"), 1, [3, 4]);
      rings(place.point, place.axes, colour("accent"));
      dot(place.point, colour("accent"), 5.5, colour("card"));
      if (here) line([here, place.point], colour("accent"), 1.8, [7, 5]);
    }
    objects.forEach((each, rank) => {
      line([each.point, [each.point[0], each.point[1], floor]], objectColour(rank), 1, [3, 4]);
      rings(each.point, each.axes, objectColour(rank));
      dot(each.point, objectColour(rank), 5.5, colour("card"));
      label(each.point, each.name, colour("ink"));
    });
    if (scene.true_point) {
      const at = project(scene.true_point);
      if (at) {
        pen.strokeStyle = colour("mark");
        pen.lineWidth = 2;
        pen.beginPath();
        pen.moveTo(at[0] - 7, at[1] - 7);
        pen.lineTo(at[0] + 7, at[1] + 7);
        pen.moveTo(at[0] + 7, at[1] - 7);
        pen.lineTo(at[0] - 7, at[1] + 7);
        pen.stroke();
      }
    }
    if (here) camera(place.query_camera, colour("accent"), 0.12 * reach);
    const chosen = scene.path_frames.indexOf(state.frame);
    if (chosen >= 0) camera(chosen, colour("mark"), 0.12 * reach);
    pen.fillStyle = colour("quiet");
    pen.font = "12px system-ui, sans-serif";
    pen.fillText(`grid ${+step.toPrecision(2)} ${scene.unit === "m" ? "m" : "units"}`, 12, height - 12);
    if (here) label(here, "query time", colour("accent"));
  }
  function label(point, text, style) {
    const at = project(point);
    if (!at) return;
    pen.fillStyle = style;
    pen.font = "600 12px system-ui, sans-serif";
    const length = pen.measureText(text).width, right = at[0] + 9 + length < width;
    pen.fillText(text, right ? at[0] + 9 : at[0] - 9 - length, at[1] - 9);
  }
  function repaint() {
    if (!waiting) requestAnimationFrame(paint);
    waiting = true;
  }
  function turn(across, down) {
    state.turn += across;
    state.tilt = Math.max(-0.2, Math.min(1.5, state.tilt + down));
    repaint();
  }
  function zoom(factor) {
    state.distance = Math.max(0.6 * reach, Math.min(9 * reach, state.distance * factor));
    repaint();
  }

  const fingers = new Map();
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return Math.hypot(a[0] - b[0], a[1] - b[1]);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const apart = fingers.size === 2 ? spread() : 0;
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (fingers.size === 2) zoom(apart / Math.max(spread(), 1));
    else turn((before[0] - event.clientX) * 0.009, (event.clientY - before[1]) * 0.009);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("wheel", (event) => { // alone it scrolls the page; with Ctrl, as a pinch sends it, it zooms
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(event.deltaY * 0.003));
  }, { passive: false });
  const keys = {
    ArrowLeft: () => turn(0.12, 0), ArrowRight: () => turn(-0.12, 0), ArrowUp: () => turn(0, 0.08), ArrowDown: () => turn(0, -0.08),
    "+": () => zoom(0.88), "=": () => zoom(0.88), "-": () => zoom(1.14),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  new ResizeObserver(repaint).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  repaint();
  return { select(frame) { state.frame = frame; repaint(); } };
}
