"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { samples, curve, tracks, video, query } = data;
  const count = samples.time.length;
  samples.image.forEach((uri, sample, all) => { all[sample] = uri || all[sample - 1]; });
  const answer = data.found ? tracks[0] : null;
  const byId = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const FILM_FIRST = 12;

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  function draw(tag, attributes = {}, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  function clock(seconds) {
    const tenths = Math.round(seconds * 10);
    const minutes = Math.floor(tenths / 600);
    const rest = (tenths % 600) / 10;
    return `${minutes}:${rest.toFixed(1).padStart(4, "0")}`;
  }
  const percent = (value) => `${Math.round(100 * value)} %`;

  // Which track, the answer first, speaks of a sample.
  function viewAt(sample) {
    for (const [rank, track] of tracks.entries()) {
      if (sample >= track.start && sample <= track.end) return { rank, ...track.views[sample - track.start] };
    }
    return null;
  }

  function marks(width, height, view, other) {
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    if (!view) return svg;
    if (view.mask) {
      const [x1, y1, x2, y2] = view.maskBox || [0, 0, width, height];
      svg.append(draw("image", {
        href: view.mask, x: x1, y: y1, width: x2 - x1, height: y2 - y1, preserveAspectRatio: "none", opacity: 0.32,
      }));
    }
    if (view.box) {
      const [x1, y1, x2, y2] = view.box;
      const place = { x: x1, y: y1, width: x2 - x1, height: y2 - y1, rx: 2 };
      svg.append(draw("rect", { class: "halo", ...place }), draw("rect", { class: other ? "mark other" : "mark", ...place }));
    }
    return svg;
  }
  function image(sample) {
    const view = viewAt(sample);
    return [
      make("img", { src: samples.image[sample], alt: `Frame at ${clock(samples.time[sample])}`, draggable: "false" }),
      marks(video.width, video.height, view, view && view.rank > 0),
    ];
  }

  // The part of a frame around its box, never less than a third of the frame.
  function closeUp(view) {
    const [x1, y1, x2, y2] = view.box;
    const scale = Math.min(1, Math.max((x2 - x1) * 2.2 / video.width, (y2 - y1) * 2.2 / video.height, 0.34));
    const width = scale * video.width, height = scale * video.height;
    const left = Math.max(0, Math.min(video.width - width, (x1 + x2 - width) / 2));
    const top = Math.max(0, Math.min(video.height - height, (y1 + y2 - height) / 2));
    const svg = marks(video.width, video.height, view, false);
    svg.setAttribute("viewBox", `${left} ${top} ${width} ${height}`);
    svg.setAttribute("class", "alone");
    svg.style.aspectRatio = `${video.width} / ${video.height}`;
    svg.prepend(draw("image", { href: samples.image[view.sample], width: video.width, height: video.height, preserveAspectRatio: "none" }));
    return svg;
  }

  const listeners = [];
  let current = -1;
  function show(sample) {
    sample = Math.max(0, Math.min(count - 1, sample));
    if (sample === current) return;
    current = sample;
    byId("viewer").replaceChildren(...image(sample));
    const view = viewAt(sample);
    byId("moment").textContent =
      `${clock(samples.time[sample])} · frame ${samples.frame[sample]} · score ${curve.smooth[sample].toFixed(2)}` +
      (view ? "" : " · no box");
    for (const listener of listeners) listener(sample);
  }

  function header() {
    if (answer) {
      byId("headline").textContent =
        `Last seen from ${clock(samples.time[answer.start])} to ${clock(samples.time[answer.end])}`;
    } else {
      byId("headline").textContent = "Not seen in this video";
    }
    const facts = [answer ? `confidence ${percent(data.score)}` : data.reason, video.name,
      `${video.width} × ${video.height}`, `${count} samples at ${video.sampleFps} per second`];
    byId("subline").textContent = facts.join(" · ");
    document.title = `${byId("headline").textContent} · ${video.name}`;
    byId("notes").hidden = !data.notes.length;
    byId("notes").append(...data.notes.map((note) => make("li", {}, note)));
  }

  function queryCard() {
    const shape = { box: query.box, mask: query.mask };
    byId("query").append(
      make("img", { src: query.image, alt: "The object asked for", draggable: "false" }),
      marks(query.width, query.height, shape, false),
    );
    const levels = ["clear outline", "soft outline", "no outline, box only"];
    const facts = [];
    if (query.level !== null) facts.push(["Mask", `level ${query.level}: ${levels[query.level]}`], ["Mask quality", query.quality.toFixed(2)]);
    if (query.seenAt !== null) facts.push(["Seen at", clock(query.seenAt)]);
    fill(byId("query-facts"), facts);
  }
  function fill(list, facts) {
    for (const [name, value] of facts) list.append(make("dt", {}, name), make("dd", {}, value));
  }

  function curveCard() {
    const box = byId("curve");
    const left = 30, right = 8, top = 10, bottom = 24;
    const first = samples.time[0], last = samples.time[count - 1];
    const half = count > 1 ? (last - first) / (count - 1) / 2 : 0.5;
    let x, y, cursor, knob;
    function place() {
      const width = box.clientWidth, height = box.clientHeight;
      x = (sample) => left + (width - left - right) * ((samples.time[sample] - first + half) / (last - first + 2 * half));
      y = (value) => top + (height - top - bottom) * (1 - Math.max(0, Math.min(1, value)));
      const step = count > 1 ? (x(count - 1) - x(0)) / (count - 1) / 2 : 4;
      const line = (values) => values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      const svg = draw("svg", { "aria-hidden": "true" });
      const shade = (start, end, name) => svg.append(draw("rect", {
        class: name, x: x(start) - step, y: top, width: x(end) - x(start) + 2 * step, height: height - top - bottom, rx: 3,
      }));
      for (const [start, end] of passed()) shade(start, end, "passed");
      if (answer) shade(answer.start, answer.end, "chosen");
      for (const value of [0, 0.5, 1]) {
        svg.append(draw("line", { class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
          draw("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, String(value)));
      }
      const ticks = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600];
      const every = ticks.find((tick) => (last - first) / tick <= width / 75) || ticks[ticks.length - 1];
      for (let time = Math.ceil(first / every) * every; time <= last; time += every) {
        const at = left + (width - left - right) * ((time - first + half) / (last - first + 2 * half));
        svg.append(draw("text", { x: at, y: height - 5, "text-anchor": "middle" }, clock(time).replace(/\.0$/, "")));
      }
      svg.append(draw("path", { class: "under", d: `${line(curve.smooth)}L${x(count - 1)} ${y(0)}L${x(0)} ${y(0)}Z` }),
        draw("path", { class: "raw", d: line(curve.raw) }), draw("path", { class: "smooth", d: line(curve.smooth) }),
        draw("line", { class: "threshold", x1: left, x2: width - right, y1: y(curve.threshold), y2: y(curve.threshold) }));
      cursor = draw("line", { class: "cursor", y1: top, y2: height - bottom });
      knob = draw("circle", { class: "knob", r: 4.5 });
      svg.append(cursor, knob);
      box.replaceChildren(svg);
      if (current >= 0) move(current);
    }
    function move(sample) {
      cursor.setAttribute("x1", x(sample));
      cursor.setAttribute("x2", x(sample));
      knob.setAttribute("cx", x(sample));
      knob.setAttribute("cy", y(curve.smooth[sample]));
      box.setAttribute("aria-valuenow", sample);
      box.setAttribute("aria-valuetext", `${clock(samples.time[sample])}, score ${curve.smooth[sample].toFixed(2)}`);
    }
    function pick(event) {
      const inside = event.clientX - box.getBoundingClientRect().left;
      let best = 0;
      for (let i = 1; i < count; i++) if (Math.abs(x(i) - inside) < Math.abs(x(best) - inside)) best = i;
      show(best);
    }
    box.setAttribute("aria-valuemax", count - 1);
    box.addEventListener("pointerdown", (event) => { box.setPointerCapture(event.pointerId); pick(event); });
    box.addEventListener("pointermove", (event) => { if (event.buttons) pick(event); });
    const keys = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -count, End: count };
    box.addEventListener("keydown", (event) => {
      if (!(event.key in keys)) return;
      event.preventDefault();
      show(current + keys[event.key]);
    });
    place();
    new ResizeObserver(place).observe(box);
    listeners.push(move);
    const dashes = "repeating-linear-gradient(90deg, var(--quiet) 0 5px, transparent 5px 8px)";
    const entries = [["var(--accent)", "score, smoothed", "line"], ["color-mix(in srgb, var(--quiet) 45%, transparent)", "score of each sample", "line"], [dashes, "threshold", "line"]];
    if (answer) entries.push(["var(--accent-soft)", "the answer"]);
    if (passed().length) entries.push(["var(--other-soft)", "not chosen"]);
    byId("legend").append(...legend(entries));
    chips();
  }
  function legend(entries) {
    return entries.map(([colour, text, kind = ""]) => {
      const swatch = make("i", { class: kind });
      swatch.style.background = colour;
      return make("li", {}, swatch, text);
    });
  }
  // Intervals that are not the answer, those of the alternatives among them.
  function passed() {
    const all = [...curve.intervals, ...tracks.slice(answer ? 1 : 0).map((track) => [track.start, track.end])];
    const unlike = (a, b) => !b || a[1] < b[0] || a[0] > b[1];
    const kept = [];
    for (const one of all) {
      if (unlike(one, answer && [answer.start, answer.end]) && kept.every((other) => unlike(one, other))) kept.push(one);
    }
    return kept.sort((a, b) => a[0] - b[0]);
  }
  function chips() {
    const chip = (start, end, name, text) => {
      const button = make("button", { type: "button", class: name }, `${clock(samples.time[start])} – ${clock(samples.time[end])} ${text}`);
      button.addEventListener("click", () => show(Math.round((start + end) / 2)));
      return button;
    };
    const all = passed().map(([start, end]) => [start, end, "passed", "earlier"]);
    for (const entry of all) {
      const track = tracks.find((one) => one.start <= entry[1] && one.end >= entry[0]);
      entry[3] = track ? percent(track.score) : percent(Math.max(...curve.smooth.slice(entry[0], entry[1] + 1)));
    }
    if (answer) all.push([answer.start, answer.end, "chosen", "the answer"]);
    byId("intervals").append(...all.sort((a, b) => a[0] - b[0]).map((entry) => chip(...entry)));
  }

  function controls() {
    byId("previous").addEventListener("click", () => show(current - 1));
    byId("next").addEventListener("click", () => show(current + 1));
    const jump = byId("to-answer");
    jump.hidden = !answer;
    jump.addEventListener("click", () => show(Math.round((answer.start + answer.end) / 2)));
    const button = byId("play");
    let timer = null;
    function stop() {
      clearInterval(timer);
      timer = null;
      button.textContent = "▶";
      button.setAttribute("aria-label", "Play");
      button.setAttribute("aria-pressed", "false");
    }
    button.addEventListener("click", () => {
      if (timer) return stop();
      if (current === count - 1) show(0);
      timer = setInterval(() => { current < count - 1 ? show(current + 1) : stop(); }, 1000 / (video.sampleFps || 5));
      button.textContent = "❚❚";
      button.setAttribute("aria-label", "Pause");
      button.setAttribute("aria-pressed", "true");
    });
  }

  function film() {
    if (!answer) return;
    byId("film-card").hidden = false;
    const views = answer.views;
    const some = views.length <= FILM_FIRST ? views
      : Array.from({ length: FILM_FIRST }, (_, i) => views[Math.round(i * (views.length - 1) / (FILM_FIRST - 1))]);
    function fillWith(chosen) {
      byId("film").replaceChildren(...chosen.map((view) => {
        const frame = make("div", { class: "image" }, closeUp(view));
        const words = make("span", {}, make("span", {}, clock(samples.time[view.sample])), make("span", {}, view.score.toFixed(2)));
        const button = make("button", { type: "button", "data-sample": view.sample, "aria-current": view.sample === current }, frame, words);
        button.addEventListener("click", () => show(view.sample));
        return button;
      }));
    }
    fillWith(some);
    const more = byId("film-all");
    more.hidden = some.length === views.length;
    more.textContent = `Show all ${views.length} frames`;
    more.addEventListener("click", () => { fillWith(views); more.hidden = true; });
    listeners.push((sample) => {
      for (const button of byId("film").children) button.setAttribute("aria-current", Number(button.dataset.sample) === sample);
    });
  }

  function space() {
    const scene = data.scene;
    if (!scene) return;
    byId("scene-card").hidden = false;
    byId("scene-words").textContent = sceneWords(scene);
    const box = byId("scene");
    if (!scene.path.length) {
      box.parentElement.parentElement.hidden = true;
      return;
    }
    const sampleOfFrame = new Map(samples.frame.map((frame, i) => [frame, i]));
    const view = startScene(box, scene);
    listeners.push((sample) => view.select(samples.frame[sample]));
    byId("scene-legend").append(...legend(sceneLegend(scene)));
    if (scene.views.length) factors(scene, sampleOfFrame);
  }
  function factors(scene, sampleOfFrame) {
    const names = ["weight", "semantic", "depth", "reprojection", "baseline"];
    const short = { reprojection: "reproj." };
    const largest = Math.max(...scene.views.map((view) => view.weight), 1e-9);
    const head = make("tr", {}, make("th", {}, "time"), ...names.map((name) => make("th", { title: name }, short[name] || name)));
    const rows = scene.views.map((view) => {
      const sample = sampleOfFrame.get(view.frame);
      const jump = make("button", { type: "button" }, sample === undefined ? `#${view.frame}` : clock(samples.time[sample]));
      if (sample !== undefined) jump.addEventListener("click", () => show(sample));
      const cells = names.map((name) => {
        const level = make("i");
        level.style.width = `${100 * Math.max(0, Math.min(1, name === "weight" ? view.weight / largest : view[name]))}%`;
        return make("td", { title: `${name} ${view[name].toFixed(3)}` }, make("div", { class: `bar ${name}`, role: "img", "aria-label": `${name} ${view[name].toFixed(2)}` }, level));
      });
      return make("tr", { "data-frame": view.frame }, make("td", {}, jump), ...cells);
    });
    byId("views").append(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
    listeners.push((sample) => {
      for (const row of rows) row.setAttribute("aria-current", Number(row.dataset.frame) === samples.frame[sample]);
    });
  }

  function maps() {
    if (!data.maps.length) return;
    byId("maps-card").hidden = false;
    for (const entry of data.maps) {
      const svg = marks(video.width, video.height, viewAt(entry.sample), false);
      if (entry.ellipse) {
        const [cx, cy, rx, ry] = entry.ellipse;
        svg.append(draw("ellipse", { class: "mark ellipse", cx, cy, rx, ry }));
        if (entry.drift) svg.append(draw("line", { class: "mark ellipse", x1: cx - entry.drift[0], y1: cy - entry.drift[1], x2: cx, y2: cy }));
      }
      const caption = `Frame at ${clock(samples.time[entry.sample])}` + (entry.ellipse ? ", the ellipse searched and its drift" : "");
      const frame = make("figure", {}, make("div", { class: "image" }, make("img", { src: samples.image[entry.sample], alt: caption }), svg),
        make("figcaption", {}, caption));
      const figures = entry.maps.map((map) => make("figure", {},
        make("div", { class: "image" }, make("img", { src: map.image, alt: map.name, style: `aspect-ratio: ${video.width} / ${video.height}` })),
        make("figcaption", {}, map.note ? `${map.name}: ${map.note}` : map.name)));
      byId("maps").append(make("div", { class: "map-row" }, frame, ...figures));
    }
  }

  function how() {
    const total = Math.max(...data.timings.map(([, seconds]) => seconds), 1e-9);
    for (const [name, seconds] of data.timings) {
      const level = make("i");
      level.style.width = `${100 * seconds / total}%`;
      const text = seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`;
      byId("timings").append(make("span", {}, name), make("div", { class: "bar weight" }, level), make("b", {}, text));
    }
    fill(byId("versions"), data.versions);
  }

  header();
  queryCard();
  curveCard();
  controls();
  film();
  space();
  maps();
  how();
  if (data.overlay) {
    byId("overlay-card").hidden = false;
    byId("overlay").poster = samples.image[answer ? answer.start : 0];
    byId("overlay").src = data.overlay;
  }
  const best = curve.smooth.indexOf(Math.max(...curve.smooth));
  show(answer ? Math.round((answer.start + answer.end) / 2) : best);
})();
