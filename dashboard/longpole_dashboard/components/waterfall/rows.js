// The rows: which are visible, and of these the ones in sight, drawn.

const AXIS_TICKS = 1e8;
const ROW_PX = 26;
const OVERSCAN = 6;
const [ON_PATH, IS_CALL, IS_PHASE, IS_ERROR, IS_CLOSED] = [1, 2, 4, 8, 16];

const pathOf = (rows, row) => (rows.path[row] === 1 ? rows.parts[row] : rows.path[row]);

function listVisible(state) {
  const { rows, closed, pathOnly } = state;
  const visible = [];
  for (let row = 0; row < rows.key.length; row += 1) {
    if (pathOnly && !(rows.is[row] & ON_PATH)) {
      row += rows.below[row];
      continue;
    }
    visible.push(row);
    if (closed.has(row)) row += rows.below[row];
  }
  state.visible = visible;
  state.lines.style.height = `${visible.length * ROW_PX}px`;
  // What is hidden cannot stay active: the nearest row above it is.
  if (!visible.includes(state.active)) {
    state.active = visible.findLast((row) => row < state.active) ?? visible[0];
  }
}

// A model call has no stage of its own, and folded rows may have several: their rows have.
function chip(rows, row, data) {
  if (rows.is[row] & IS_CALL) return element("span", "chip call");
  if (rows.folded[row]) return element("span", "chip folded");
  return painted("chip", data.stages[rows.stage[row]]);
}

function drawBar(state, row, widthPx) {
  const { rows, data } = state;
  const [from, to] = state.window;
  const track = element("div", "track");
  const place = (className, parts) => {
    let drawnTo = -1;
    for (let i = 0; i < parts.length; i += 3) {
      const left = (parts[i] / AXIS_TICKS - from) / (to - from);
      const right = ((parts[i] + parts[i + 1]) / AXIS_TICKS - from) / (to - from);
      // What is out of the window is not drawn, nor what would lie within a drawn pixel.
      if (right < 0 || left > 1 || (i && right * widthPx < drawnTo)) continue;
      drawnTo = Math.max(right * widthPx, left * widthPx + 1);
      const part = painted(className, data.stages[parts[i + 2]]);
      part.classList.toggle("thin", (right - left) * widthPx < 4);
      part.style.left = percent(Math.max(left, 0));
      part.style.width = percent(Math.min(right, 1) - Math.max(left, 0));
      track.append(part);
    }
  };
  place("part", rows.parts[row]);
  place("part on-path", pathOf(rows, row));
  return track;
}

function drawRow(state, row, place, widthPx) {
  const { rows, data } = state;
  const line = element("div", "row");
  line.id = `row-${row}`;
  line.dataset.row = row;
  line.style.top = `${place * ROW_PX}px`;
  line.setAttribute("role", "treeitem");
  line.setAttribute("aria-level", rows.depth[row] + 1);
  line.setAttribute("aria-setsize", state.visible.length);
  line.setAttribute("aria-posinset", place + 1);
  line.setAttribute("aria-selected", String(rows.key[row] === state.selected));
  line.classList.toggle("selected", rows.key[row] === state.selected);
  line.classList.toggle("active", row === state.active);
  line.classList.toggle("odd", place % 2 === 1);
  if (!(rows.is[row] & ON_PATH)) line.classList.add("off-path");

  const name = element("div", "name");
  name.style.paddingLeft = `${0.25 + 0.9 * Math.min(rows.depth[row], 12)}rem`;
  const fold = element("button", "fold");
  fold.tabIndex = -1;
  if (rows.below[row]) {
    const isOpen = !state.closed.has(row);
    fold.textContent = isOpen ? "▾" : "▸";
    line.setAttribute("aria-expanded", String(isOpen));
    fold.setAttribute("aria-label", `${isOpen ? "fold" : "unfold"} ${rows.below[row]} rows`);
  } else {
    fold.setAttribute("aria-hidden", "true");
  }
  const text = element("span", "text", rows.names[rows.name[row]]);
  text.title = rows.names[rows.name[row]];
  name.append(fold, chip(rows, row, data), text);
  if (rows.is[row] & IS_ERROR) name.append(element("span", "error", "error"));
  line.append(
    name,
    element("div", "number", rows.time[row]),
    element("div", "number", rows.critical[row]),
    drawBar(state, row, widthPx),
  );
  return line;
}

function drawRows(state) {
  const { tree, lines, visible } = state;
  const first = Math.max(0, Math.floor(tree.scrollTop / ROW_PX) - OVERSCAN);
  const last = Math.ceil((tree.scrollTop + tree.clientHeight) / ROW_PX) + OVERSCAN;
  const widthPx = state.axisTrack.clientWidth || 600;
  const drawn = visible.slice(first, last);
  const rows = drawn.map((row, i) => drawRow(state, row, first + i, widthPx));
  lines.replaceChildren(state.grid, ...rows);
  if (drawn.includes(state.active)) tree.setAttribute("aria-activedescendant", `row-${state.active}`);
  else tree.removeAttribute("aria-activedescendant");
}

// Round marks on the axis, about six, in seconds, and a line below each.
function drawAxis(state) {
  const [from, to] = state.window.map((ratio) => ratio * state.data.extent_s);
  const rough = (to - from) / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.9999);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const marks = [];
  const gridlines = [];
  for (let index = Math.ceil(from / step - 1e-9); index * step <= to; index += 1) {
    const ratio = (index * step - from) / (to - from);
    const line = element("span", "gridline");
    line.style.left = percent(ratio);
    gridlines.push(line);
    if (ratio > 0.97) continue; // it would be cut off at the edge
    const mark = element("span", ratio < 0.03 ? "tick first" : "tick", `${(index * step).toFixed(decimals)} s`);
    mark.style.left = percent(ratio);
    marks.push(mark);
  }
  state.axisTrack.replaceChildren(...marks);
  state.grid.lastChild.replaceChildren(...gridlines);
}

// The lines of the axis behind the rows: a row of the same columns, as high as all of them.
function buildGrid() {
  const grid = element("div", "row grid");
  grid.setAttribute("role", "presentation");
  grid.append(element("div"), element("div"), element("div"), element("div", "track"));
  return grid;
}
