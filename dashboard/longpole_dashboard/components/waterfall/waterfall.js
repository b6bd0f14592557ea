// Draws one trace: stage strip, minimap, tree of spans on a time axis.

const states = new WeakMap();

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
  const told = data.strip.map((part) => `${data.stages[part.stage].label} ${part.text}`);
  bar.setAttribute("aria-label", `${told.join(", ")}; ${data.sum}`);
  root.replaceChildren(bar, legend, element("p", "sum", data.sum));
  if (data.opaque) root.append(element("p", "sum opaque", data.opaque));
}

// --- selection, folding, keys -------------------------------------------------------------------

function select(state, row) {
  state.active = row;
  state.selected = state.rows.key[row];
  drawRows(state);
  state.send("selected", state.selected);
}

function toggleFold(state, row) {
  if (!state.closed.delete(row)) state.closed.add(row);
  listVisible(state);
  drawRows(state);
}

function activate(state, place) {
  const { tree, visible } = state;
  if (!visible.length) return;
  const bounded = Math.min(visible.length - 1, Math.max(0, place));
  state.active = visible[bounded];
  const top = bounded * ROW_PX;
  const room = tree.clientHeight - 2 * ROW_PX;
  if (top < tree.scrollTop) tree.scrollTop = top;
  else if (top > tree.scrollTop + room) tree.scrollTop = top - room;
  drawRows(state);
}

function parentOf(rows, row) {
  let above = row - 1;
  while (above >= 0 && rows.depth[above] >= rows.depth[row]) above -= 1;
  return above;
}

function onArrow(event, state, place) {
  const { rows, active, closed, visible } = state;
  const isOpen = place >= 0 && rows.below[active] > 0 && !closed.has(active);
  if (event.key === "ArrowLeft") {
    if (isOpen) toggleFold(state, active);
    else activate(state, visible.indexOf(parentOf(rows, active)));
  } else if (closed.has(active)) toggleFold(state, active);
  else if (isOpen) activate(state, place + 1);
}

function onKey(event, state) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const place = state.visible.indexOf(state.active);
  const page = Math.max(1, Math.floor(state.tree.clientHeight / ROW_PX) - 2);
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
  if (event.key in steps) activate(state, place + steps[event.key]);
  else if (event.key === "Home") activate(state, 0);
  else if (event.key === "End") activate(state, state.visible.length - 1);
  else if (event.key === "Enter" && place >= 0) select(state, state.active);
  else if (event.key === "ArrowLeft" || event.key === "ArrowRight") onArrow(event, state, place);
  else return;
  event.preventDefault();
}

function onClick(event, state) {
  const line = event.target.closest("[role=treeitem]");
  if (!line) return;
  const row = Number(line.dataset.row);
  if (event.target.closest(".fold") && state.rows.below[row]) toggleFold(state, row);
  else select(state, row);
}

async function copyLink(state, button, shown) {
  const link = new URL(window.location.href);
  link.searchParams.set("trace", state.data.trace_id);
  if (state.selected) link.searchParams.set("span", state.selected);
  try {
    await navigator.clipboard.writeText(link.href);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy link"), 1500);
  } catch {
    // No clipboard without HTTPS or permission: the reader copies it by hand.
    shown.hidden = false;
    shown.value = link.href;
    shown.select();
  }
}

// --- mounting -----------------------------------------------------------------------------------

function build(parentElement) {
  const at = (name) => parentElement.querySelector(name);
  const state = { tree: at(".tree"), lines: at(".lines"), axisTrack: at(".axis .track"), grid: buildGrid() };
  at(".path-only").addEventListener("change", (event) => {
    state.pathOnly = event.target.checked;
    listVisible(state);
    drawRows(state);
  });
  at(".copy").addEventListener("click", () => copyLink(state, at(".copy"), at(".link")));
  state.tree.addEventListener("keydown", (event) => onKey(event, state));
  state.lines.addEventListener("click", (event) => onClick(event, state));
  buildMinimap(at(".minimap"), state);
  const later = (draw) => {
    let isDue = false;
    return () => {
      if (isDue || !state.rows) return;
      isDue = true;
      requestAnimationFrame(() => {
        isDue = false;
        draw(state);
      });
    };
  };
  state.tree.addEventListener("scroll", later(drawRows));
  new ResizeObserver(
    later(() => {
      drawMinimap(state);
      drawRows(state);
    }),
  ).observe(state.tree);
  states.set(parentElement, state);
  return state;
}

function show(state, parentElement, drawn, selected) {
  const data = JSON.parse(drawn.slice(8));
  const isOther = !state.data || state.data.trace_id !== data.trace_id;
  Object.assign(state, { data, rows: data.rows, version: drawn.slice(0, 8) });
  if (isOther) {
    state.closed = new Set();
    data.rows.is.forEach((bits, row) => bits & IS_CLOSED && state.closed.add(row));
    state.window = [0, 1];
    state.selected = selected;
    state.pathOnly = parentElement.querySelector(".path-only").checked;
  }
  state.active = Math.max(0, data.rows.key.indexOf(state.selected));
  for (let row = parentOf(data.rows, state.active); row >= 0; row = parentOf(data.rows, row)) {
    state.closed.delete(row);
  }
  listVisible(state);
  drawStrip(parentElement.querySelector(".stages"), data);
  drawAxis(state);
  drawWindow(state);
  drawMinimap(state);
  if (isOther) state.tree.scrollTop = 0;
  activate(state, state.visible.indexOf(state.active));
}

export default function (component) {
  const { data, parentElement, setStateValue } = component;
  const state = states.get(parentElement) ?? build(parentElement);
  state.send = setStateValue;
  if (state.version !== data.drawn.slice(0, 8)) show(state, parentElement, data.drawn, data.selected);
}
