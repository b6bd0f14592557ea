// The whole trace in small, and a window on it: drag to choose one, drag it to move it, drag its
// edges to change it; arrow keys on an edge do the same. A double click shows everything.

const LEAST_WINDOW = 0.0005;

function drawMinimap(state) {
  const { canvas, rows, data } = state;
  const { width, height } = canvas.getBoundingClientRect();
  if (!width) return;
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  const count = Math.max(rows.key.length, 1);
  const thick = Math.max(scale, (0.8 * canvas.height) / count);
  const place = (parts, y) => {
    for (let i = 0; i < parts.length; i += 3) {
      pen.fillStyle = data.stages[parts[i + 2]].colour;
      const left = (parts[i] / AXIS_TICKS) * canvas.width;
      pen.fillRect(left, y, Math.max(1, (parts[i + 1] / AXIS_TICKS) * canvas.width), thick);
    }
  };
  for (const alpha of [0.35, 1]) {
    pen.globalAlpha = alpha;
    for (let row = 0; row < rows.key.length; row += 1) {
      // Folded rows are drawn themselves, as are the phases of a call.
      if (rows.folded[row] || rows.is[row] & IS_CALL) continue;
      const y = (row / count) * (canvas.height - thick);
      place(alpha === 1 ? pathOf(rows, row) : rows.parts[row], y);
    }
  }
}

function drawWindow(state) {
  const [from, to] = state.window;
  const { box, grips } = state.minimap;
  box.style.left = percent(from);
  box.style.width = percent(to - from);
  state.minimap.node.classList.toggle("zoomed", to - from < 1);
  grips.forEach((grip, side) => {
    grip.style.left = percent(state.window[side]);
    const seconds = state.window[side] * state.data.extent_s;
    grip.setAttribute("aria-valuenow", (100 * state.window[side]).toFixed(1));
    grip.setAttribute("aria-valuetext", `${seconds.toPrecision(4)} s`);
  });
}

function setWindow(state, from, to) {
  const low = Math.max(0, Math.min(from, to));
  const high = Math.min(1, Math.max(from, to));
  const middle = Math.min(1 - LEAST_WINDOW / 2, Math.max(LEAST_WINDOW / 2, (low + high) / 2));
  const half = Math.max(high - low, LEAST_WINDOW) / 2;
  state.window = [Math.max(0, middle - half), Math.min(1, middle + half)];
  drawWindow(state);
  drawAxis(state);
  drawRows(state);
}

function moveEdge(state, side, by) {
  const edges = [...state.window];
  edges[side] = Math.max(0, Math.min(1, edges[side] + by));
  if (edges[1] - edges[0] >= LEAST_WINDOW) setWindow(state, edges[0], edges[1]);
}

function startDrag(event, state) {
  const { node } = state.minimap;
  const box = node.getBoundingClientRect();
  const at = (moved) => Math.max(0, Math.min(1, (moved.clientX - box.left) / box.width));
  const begun = at(event);
  const [from, to] = state.window;
  const side = state.minimap.grips.indexOf(event.target);
  const isMove = event.target === state.minimap.box && to - from < 1;
  const drag = (moved) => {
    const now = at(moved);
    if (side >= 0) {
      setWindow(state, side ? from : now, side ? now : to);
    } else if (isMove) {
      const by = Math.max(-from, Math.min(1 - to, now - begun));
      setWindow(state, from + by, to + by);
    } else if (Math.abs(now - begun) > 0.005) {
      setWindow(state, begun, now);
    }
  };
  const end = () => {
    node.removeEventListener("pointermove", drag);
    node.removeEventListener("pointerup", end);
    node.removeEventListener("pointercancel", end);
  };
  node.setPointerCapture(event.pointerId);
  node.addEventListener("pointermove", drag);
  node.addEventListener("pointerup", end);
  node.addEventListener("pointercancel", end);
}

function buildMinimap(node, state) {
  const box = element("div", "window");
  const grips = ["from", "to"].map((name, side) => {
    const grip = element("div", "grip");
    grip.tabIndex = 0;
    grip.setAttribute("role", "slider");
    grip.setAttribute("aria-label", `window ${name}`);
    grip.setAttribute("aria-valuemin", "0");
    grip.setAttribute("aria-valuemax", "100");
    grip.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      moveEdge(state, side, by * (event.shiftKey ? 0.002 : 0.02));
    });
    return grip;
  });
  node.append(box, ...grips);
  state.minimap = { node, box, grips };
  state.canvas = node.querySelector("canvas");
  node.addEventListener("pointerdown", (event) => startDrag(event, state));
  node.addEventListener("dblclick", () => setWindow(state, 0, 1));
}
