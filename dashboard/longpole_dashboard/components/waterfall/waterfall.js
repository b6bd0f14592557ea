// Draws one trace: stage strip, tree of spans on a time axis, side panel.
// Span names and attributes are hostile input: text goes through textContent only.

const states = new WeakMap();

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined && text !== null) node.textContent = text;
  return node;
}

function painted(className, look) {
  const node = element("span", look.is_hatched ? `${className} hatched` : className);
  node.style.setProperty("--stage", look.colour);
  return node;
}

// A model call has no stage of its own: its phases have.
const chip = (row, data) => (row.is_call ? element("span", "chip call") : painted("chip", data.stages[row.stage]));

const percent = (ratio) => `${(100 * ratio).toFixed(4)}%`;

// --- strip --------------------------------------------------------------------------------------

function drawStrip(root, data) {
  const bar = element("div", "strip");
  const legend = element("ul", "legend");
  for (const part of data.strip) {
    const look = data.stages[part.stage];
    const piece = painted("piece", look);
    piece.style.flexGrow = part.ratio;
    piece.title = `${look.label}: ${part.text} (${part.share})`;
    bar.append(piece);
    const item = element("li");
    item.title = look.doc;
    item.append(
      painted("chip", look),
      element("span", "label", look.label),
      element("span", "value", part.text),
      element("span", "share", part.share),
    );
    legend.append(item);
  }
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", data.sum);
  root.replaceChildren(bar, legend, element("p", "sum", data.sum));
}

// --- rows ---------------------------------------------------------------------------------------

function visibleRows(state) {
  const { rows } = state.data;
  let closedAt = Infinity;
  return rows.filter((row) => {
    if (row.depth > closedAt) return false;
    closedAt = state.closed.has(row.key) ? row.depth : Infinity;
    return row.is_on_path || !state.pathOnly;
  });
}

function drawBar(row, data) {
  const track = element("div", "track");
  const place = (className, parts) => {
    for (const [left, width, stage] of parts) {
      const part = painted(className, data.stages[stage]);
      part.style.left = percent(left);
      part.style.width = percent(width);
      track.append(part);
    }
  };
  place("part", row.parts);
  place("part on-path", row.path);
  return track;
}

function drawRow(row, state) {
  const { data } = state;
  const line = element("div", "row");
  line.id = `row-${row.key}`;
  line.dataset.key = row.key;
  line.setAttribute("role", "treeitem");
  line.setAttribute("aria-level", row.depth + 1);
  if (!row.is_on_path) line.classList.add("off-path");

  const name = element("div", "name");
  name.style.paddingLeft = `${0.25 + 0.9 * Math.min(row.depth, 12)}rem`;
  const fold = element("button", "fold", row.num_below ? (state.closed.has(row.key) ? "▸" : "▾") : "");
  fold.tabIndex = -1;
  if (row.num_below) {
    line.setAttribute("aria-expanded", String(!state.closed.has(row.key)));
    fold.setAttribute("aria-label", `fold ${row.num_below} rows`);
    fold.addEventListener("click", (event) => {
      event.stopPropagation();
      toggleFold(state, row.key);
    });
  }
  const text = element("span", "text", row.name);
  text.title = row.name;
  name.append(fold, chip(row, data), text);
  if (row.is_error) name.append(element("span", "error", "error"));
  line.append(name, element("div", "number", row.duration), element("div", "number", row.critical), drawBar(row, data));
  line.addEventListener("click", () => select(state, row.key));
  return line;
}

function drawAxis(data) {
  const axis = element("div", "row axis");
  const track = element("div", "track");
  for (const tick of data.ticks) {
    const mark = element("span", "tick", tick.text);
    mark.style.left = percent(tick.ratio);
    track.append(mark);
  }
  axis.append(
    element("div", "name", "span"),
    element("div", "number", "time"),
    element("div", "number", "on path"),
    track,
  );
  return axis;
}

function drawRows(state) {
  const { data } = state;
  const lines = visibleRows(state).map((row) => drawRow(row, state));
  const grid = element("div", "lines");
  grid.style.setProperty("--step", percent(data.ticks[0].step));
  grid.append(...lines);
  if (data.num_more) {
    const more = element("button", "more", `Show more: ${data.num_more.toLocaleString("en")} further rows`);
    more.addEventListener("click", () => state.send("limit", data.rows.length + data.page));
    grid.append(more);
  }
  state.tree.replaceChildren(drawAxis(data), grid);
  mark(state);
}

// --- selection, folding, keys -------------------------------------------------------------------

function mark(state) {
  for (const line of state.tree.querySelectorAll("[role=treeitem]")) {
    const isSelected = line.dataset.key === state.selected;
    line.classList.toggle("selected", isSelected);
    line.classList.toggle("active", line.dataset.key === state.active);
    line.setAttribute("aria-selected", String(isSelected));
  }
  if (state.active) state.tree.setAttribute("aria-activedescendant", `row-${state.active}`);
}

function select(state, key) {
  state.selected = key;
  state.active = key;
  mark(state);
  drawPanel(state);
  state.send("selected", key);
}

function toggleFold(state, key) {
  if (!state.closed.delete(key)) state.closed.add(key);
  drawRows(state);
}

function onKey(event, state) {
  const lines = [...state.tree.querySelectorAll("[role=treeitem]")];
  const at = lines.findIndex((line) => line.dataset.key === state.active);
  const row = state.data.rows.find((candidate) => candidate.key === state.active);
  const isClosed = state.closed.has(state.active);
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const step = event.key === "ArrowDown" ? 1 : -1;
    const next = lines[Math.min(lines.length - 1, Math.max(0, at + step))];
    if (next) {
      state.active = next.dataset.key;
      mark(state);
      next.scrollIntoView({ block: "nearest" });
    }
  } else if (event.key === "Enter" && row) {
    select(state, row.key);
  } else if (event.key === "ArrowLeft" && row && row.num_below && !isClosed) {
    toggleFold(state, row.key);
  } else if (event.key === "ArrowRight" && isClosed) {
    toggleFold(state, row.key);
  } else {
    return;
  }
  event.preventDefault();
}

// --- side panel ---------------------------------------------------------------------------------

function list(pairs) {
  const node = element("dl");
  for (const [key, value] of pairs) node.append(element("dt", "", key), element("dd", "", value));
  return node;
}

function drawPanel(state) {
  const { data, panel } = state;
  const row = data.rows.find((candidate) => candidate.key === state.selected);
  if (!row) {
    panel.replaceChildren(element("p", "hint", "Select a row to see its facts."));
    return;
  }
  const stage = element("p", "stage");
  const label = row.is_call ? "model call, shown as its phases" : data.stages[row.stage].label;
  stage.append(chip(row, data), element("span", "", label));
  panel.replaceChildren(element("h3", "", row.name), stage, list(row.facts));
  // The attributes of the row come with the next answer of the server.
  const { detail } = data;
  if (detail && detail.key === row.key) {
    panel.append(element("h4", "", "Attributes"));
    panel.append(detail.attributes.length ? list(detail.attributes) : element("p", "hint", detail.empty));
  }
}

// --- mounting -----------------------------------------------------------------------------------

function build(parentElement) {
  const at = (name) => parentElement.querySelector(name);
  const state = { tree: at(".tree"), panel: at(".panel"), closed: new Set(), pathOnly: false };
  at(".path-only").addEventListener("change", (event) => {
    state.pathOnly = event.target.checked;
    drawRows(state);
  });
  state.tree.addEventListener("keydown", (event) => onKey(event, state));
  states.set(parentElement, state);
  return state;
}

export default function (component) {
  const { data, parentElement, setStateValue } = component;
  const state = states.get(parentElement) ?? build(parentElement);
  const isOther = !state.data || state.data.version !== data.version;
  if (!state.data || state.data.trace_id !== data.trace_id) {
    state.closed.clear();
    state.selected = data.selected;
    state.active = data.selected;
  }
  state.data = data;
  state.send = setStateValue;
  if (isOther) {
    drawStrip(parentElement.querySelector(".stages"), data);
    drawRows(state);
  }
  drawPanel(state);
}
